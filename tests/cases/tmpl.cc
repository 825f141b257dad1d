/* SPDX-License-Identifier: Apache-2.0 */
/* A name whose text doubles with each of DEPTH steps, while the mangled one grows by a few bytes. */
#include <utility>

volatile unsigned long s;

template <int N> struct pairs {
	using type = std::pair<typename pairs<N - 1>::type, typename pairs<N - 1>::type>;
};

template <> struct pairs<0> {
	using type = int;
};

template <class X> __attribute__((noinline)) void spin_tmpl(X *)
{
	for (;;)
		s += s * 3 + 1;
}

int main()
{
	spin_tmpl(static_cast<pairs<DEPTH>::type *>(nullptr));
}
