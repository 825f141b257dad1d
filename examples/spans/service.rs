// SPDX-License-Identifier: Apache-2.0
// service: as service.c, from Rust.
//
//	rustc service.rs -Lbuild/libcontext -lflyball-context

use std::ffi::{c_char, c_int, CString};
use std::thread;
use std::time::Duration;

#[repr(C)]
struct Attribute {
    key: *const c_char,
    value: *const c_char,
}

#[repr(C)]
struct ProcessContext {
    resource: *const Attribute,
    resource_count: usize,
    thread_keys: *const *const c_char,
    thread_key_count: usize,
}

extern "C" {
    fn flyball_process_context_publish(context: *const ProcessContext) -> c_int;
    fn flyball_context_attach() -> c_int;
    fn flyball_context_enter(trace_id: *const u8, span_id: *const u8, flags: u8);
    fn flyball_context_attribute(key: u8, value: *const c_char, length: usize) -> c_int;
    fn flyball_context_leave();
    fn clock_gettime(clock: c_int, time: *mut [i64; 2]) -> c_int;
}

const THREAD_CPUTIME: c_int = 3;
const REQUESTS: [(&str, u64); 3] = [("/fast", 20), ("/slow", 60), ("/batch", 120)];

/// In a span until it is dropped.
struct Span;

impl Span {
    fn enter(trace_id: &[u8; 16], span_id: &[u8; 8], route: &str) -> Span {
        unsafe {
            flyball_context_enter(trace_id.as_ptr(), span_id.as_ptr(), 1);
            flyball_context_attribute(0, route.as_ptr().cast(), route.len());
        }
        Span
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        unsafe { flyball_context_leave() }
    }
}

fn cpu_time() -> Duration {
    let mut time = [0; 2];
    unsafe { clock_gettime(THREAD_CPUTIME, &mut time) };
    Duration::new(time[0] as u64, time[1] as u32)
}

fn serve(thread: u8) {
    if unsafe { flyball_context_attach() } != 0 {
        return;
    }
    for i in 0..36u8 {
        let (route, cpu_ms) = REQUESTS[usize::from(i) % 3];
        let mut trace_id = [3; 16];
        trace_id[0] = thread;
        trace_id[15] = i;
        let _span = Span::enter(&trace_id, &[3, 0, 0, 0, 0, 0, thread, i], route);
        let end = cpu_time() + Duration::from_millis(cpu_ms);
        while cpu_time() < end {}
    }
}

fn main() {
    let texts = ["service.name", "example-rust", "http.route"].map(|text| CString::new(text).unwrap());
    let resource = [Attribute { key: texts[0].as_ptr(), value: texts[1].as_ptr() }];
    let keys = [texts[2].as_ptr()];
    let me = ProcessContext {
        resource: resource.as_ptr(),
        resource_count: 1,
        thread_keys: keys.as_ptr(),
        thread_key_count: 1,
    };
    if unsafe { flyball_process_context_publish(&me) } != 0 {
        std::process::exit(1);
    }
    let threads: Vec<_> = (1..=2).map(|number| thread::spawn(move || serve(number))).collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
