// SPDX-License-Identifier: Apache-2.0
//
// rusty: Rust as family is C.   rusty [WARM [UNITS]]
//
// Built with panic=abort and with unwinding; only the latter panics, and cleans up on the way.
use std::hint::black_box;

#[no_mangle]
#[inline(never)]
pub fn u_spin() {
    let mut s: u64 = 1;
    for _ in 0..900_000 {
        s = black_box(s.wrapping_mul(3) + 1);
    }
    black_box(s);
}

#[no_mangle]
#[inline(never)]
pub fn u_warm() {
    u_spin();
    black_box(());
}

#[no_mangle]
#[inline(never)]
pub fn u_plain_mid(n: u64) -> u64 {
    let kept = black_box([n; 8]);
    u_spin();
    kept[3]
}

#[no_mangle]
#[inline(never)]
pub fn u_plain(n: u64) {
    black_box(u_plain_mid(n));
}

#[no_mangle]
#[inline(never)]
pub fn u_sort() {
    let mut values: Vec<u32> = (0..4).rev().collect();
    values.sort_by(|a, b| {
        u_spin();
        a.cmp(b)
    });
    black_box(values);
}

#[cfg(panic = "unwind")]
mod unwinding {
    use super::*;

    struct Guard;

    #[no_mangle]
    #[inline(never)]
    pub fn u_cleanup() {
        u_spin();
        black_box(1);
    }

    impl Drop for Guard {
        #[inline(always)]
        fn drop(&mut self) {
            u_cleanup();
        }
    }

    #[no_mangle]
    #[inline(never)]
    pub fn u_thrower(n: u64) -> u64 {
        std::panic::resume_unwind(Box::new(n));
    }

    #[no_mangle]
    #[inline(never)]
    pub fn u_throw_mid(n: u64) -> u64 {
        let _guard = Guard;
        black_box(u_thrower(n))
    }

    #[no_mangle]
    #[inline(never)]
    pub fn u_throw(n: u64) {
        black_box(std::panic::catch_unwind(|| u_throw_mid(n)).is_err());
    }
}

#[cfg(panic = "unwind")]
fn throw(n: u64) {
    unwinding::u_throw(n);
}

#[cfg(not(panic = "unwind"))]
fn throw(_: u64) {}

fn main() {
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    for _ in 0..args.first().copied().unwrap_or(0) {
        u_warm();
    }
    let units = args.get(1).copied().unwrap_or(50);
    for n in 0..units {
        u_plain(n);
        u_sort();
        throw(n);
    }
    std::thread::spawn(move || {
        for n in 0..units {
            u_plain(n);
        }
    })
    .join()
    .unwrap();
}
