//! Names of fields, as people misspell them.

/// Fields of earlier versions, and their replacements.
const REMOVED: [(&str, &str); 1] = [("learning", "learning mode lasts as long as a lease")];

/// The least likeness of a misspelt name and the field that was meant, from 0 to 1.
const LIKENESS_MIN: f64 = 0.8;

/// The rule that a field called `name` breaks where only `expected` may stand.
pub fn unknown_field(name: &str, expected: &[&str]) -> String {
    if let Some((_, instead)) = REMOVED.iter().find(|(removed, _)| *removed == name) {
        return format!("unknown field, removed: {instead}");
    }
    let expected_list = expected.join(", ");
    match similar(name, expected.iter().copied()) {
        Some(meant) => {
            format!("unknown field, did you mean `{meant}`? Expected one of {expected_list}")
        }
        None => format!("unknown field, expected one of {expected_list}"),
    }
}

/// The one of `names` that is most like `name`.
pub(super) fn similar<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |meant: &'a str| (strsim::jaro_winkler(name, meant), meant);
    let best = names.map(likeness).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .map(|(_, meant)| meant)
}
