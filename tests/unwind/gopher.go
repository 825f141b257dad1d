// SPDX-License-Identifier: Apache-2.0

// gopher: Go as family is C.   gopher [WARM [UNITS]]
//
// Go keeps frame pointers and has no call frame information.
package main

import (
	"os"
	"sort"
	"strconv"
)

var sum uint64

//go:noinline
func u_spin() {
	s := sum
	for i := 0; i < 600000; i++ {
		s = s*3 + 1
	}
	sum = s
}

//go:noinline
func u_warm() {
	u_spin()
	sum++
}

//go:noinline
func u_plain_mid(n int) int {
	var kept [16]int
	kept[n&15] = n
	u_spin()
	return kept[(n+1)&15]
}

//go:noinline
func u_plain(n int) {
	sum += uint64(u_plain_mid(n))
}

//go:noinline
func u_sort() {
	values := []int{3, 2, 1, 0}
	sort.Slice(values, func(a, b int) bool {
		u_spin()
		return values[a] < values[b]
	})
}

//go:noinline
func u_thread(units int, done chan bool) {
	for n := 0; n < units; n++ {
		u_plain(n)
	}
	done <- true
}

func argument(n, otherwise int) int {
	if len(os.Args) <= n {
		return otherwise
	}
	value, err := strconv.Atoi(os.Args[n])
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	units := argument(2, 50)
	for n := argument(1, 0); n > 0; n-- {
		u_warm()
	}
	for n := 0; n < units; n++ {
		u_plain(n)
		u_sort()
	}
	done := make(chan bool)
	go u_thread(units, done)
	<-done
}
