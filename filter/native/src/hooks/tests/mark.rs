//! A mark is left to the upstream as a header.

use tollgate_filter::{MARK, MARK_HEADER};

use super::*;

#[test]
fn a_mark_sets_the_header_and_an_empty_one_removes_it() {
    let stream = fake().new_stream(&[(MARK_HEADER, "of the client")]);
    let envoy = || stream_ptr(stream);
    let header = || envoy().request_header(MARK_HEADER, <[u8]>::to_vec);
    envoy().note(vec![(MARK, String::new())]);
    assert_eq!(header(), None);
    envoy().note(vec![(MARK, "tenant/requests".to_owned())]);
    assert_eq!(header().as_deref(), Some(&b"tenant/requests"[..]));
    let rerouted = fake().rerouted.iter().filter(|one| **one == stream).count();
    assert_eq!(rerouted, 2, "the route may match the header");
}
