//! The laws under libtest, natively and in WASI.

#![cfg(not(all(target_family = "wasm", target_os = "unknown")))]

mod laws;

laws::each_law!(test, 1000);

/// Trees in which a law was broken once, beyond the first thousand.
const TREES: [(u64, &str); 2] = [
    (
        11_503,
        "who asked again too soon was lent what a late request had claimed in its name",
    ),
    (
        6153,
        "what was lent beyond a lowered capacity was lent for longer, to one that had several leases",
    ),
];

#[test]
fn seeds_that_found_bugs_stay_mended() {
    for (seed, bug) in TREES {
        let law = laws::tree::leaves_never_use_more_than_the_root_has;
        law(seed).unwrap_or_else(|how| panic!("{bug}: {how}"));
    }
}
