// SPDX-License-Identifier: Apache-2.0
// writer: publishes spans by the crates that others wrote for these specifications, and burns 60 ms of
// CPU time in each. Span N of 48 has the ids NN... and the attribute http.route "/N".

use std::time::{Duration, Instant};

use libdd_library_config::otel_process_ctx;
use libdd_library_config::tracer_metadata::{ThreadLocalMetadata, TracerMetadata};
use libdd_otel_thread_ctx::linux::OwnedThreadContext;

fn main() {
    let metadata = TracerMetadata {
        service_name: Some("writer-rust".into()),
        threadlocal_metadata: Some(ThreadLocalMetadata {
            attribute_keys: vec!["http.route".into()],
            ..Default::default()
        }),
        ..Default::default()
    };
    otel_process_ctx::publish(&metadata.to_otel_process_ctx()).unwrap();
    for n in 1..=48u8 {
        let route = format!("/{n}");
        OwnedThreadContext::update([n; 16], [n; 8], 1, [7; 8], &[(1, &route)]);
        let end = Instant::now() + Duration::from_millis(60);
        while Instant::now() < end {}
    }
    drop(OwnedThreadContext::detach());
}
