// SPDX-License-Identifier: Apache-2.0
//
// thrown: exceptions in flight. As family: functions that may be frames are called u_NAME, and the
// right chains are in tests/system/chains.py.
//
//   thrown [WARM [UNITS]]
#include <cstdlib>

#define NOINLINE __attribute__((noinline))
#define AFTER() __asm__ volatile("" ::: "memory")

static volatile unsigned long sum;

extern "C" {
NOINLINE void u_spin()
{
	for (int i = 0; i < 300000; i++)
		sum += sum * 3 + 1;
}

NOINLINE void u_warm()
{
	u_spin();
	AFTER();
}

// Runs from a landing pad of u_throw_mid, while the exception is in flight.
NOINLINE void u_cleanup()
{
	u_spin();
	AFTER();
}
}

struct Guard {
	__attribute__((always_inline)) inline ~Guard() { u_cleanup(); }
};

extern "C" {
NOINLINE int u_thrower(int n)
{
	if (n >= 0)
		throw n;
	return n;
}

NOINLINE int u_throw_mid(int n)
{
	Guard guard;
	volatile int kept = u_thrower(n);

	return kept;
}

NOINLINE void u_caught(int n)
{
	sum += static_cast<unsigned long>(n);
	u_spin();
	AFTER();
}

NOINLINE void u_throw(int n)
{
	try {
		sum += static_cast<unsigned long>(u_throw_mid(n));
	} catch (int caught) {
		u_caught(caught);
	}
	AFTER();
}

// Little but the unwinder itself.
NOINLINE void u_storm(int n)
{
	for (int i = 0; i < 100; i++) {
		try {
			sum += static_cast<unsigned long>(u_thrower(n + i));
		} catch (int caught) {
			sum += static_cast<unsigned long>(caught);
		}
	}
}
}

int main(int argc, char **argv)
{
	int warm = argc > 1 ? atoi(argv[1]) : 0, units = argc > 2 ? atoi(argv[2]) : 50;

	for (int i = 0; i < warm; i++)
		u_warm();
	for (int i = 0; i < units; i++)
		u_throw(i);
	for (int i = 0; i < units; i++)
		u_storm(i);
	return 0;
}
