//! Query parameters, as browsers and HTTP libraries write them (`application/x-www-form-urlencoded`).

use std::borrow::Cow;

use super::Found;
use super::percent::decoded;

/// The first parameter called `name` in the query of a path.
///
/// A name that cannot be decoded counts as no key, whatever it was meant to be: the upstream may
/// read it in another way.
pub(super) fn parameter<'a>(path: &[u8], name: &str) -> Found<'a> {
    let query = path.iter().position(|byte| *byte == b'?');
    let query = query.and_then(|at| path.get(at.saturating_add(1)..));
    let query = query.unwrap_or_default();
    let end = query.iter().position(|byte| *byte == b'#');
    let query = query.get(..end.unwrap_or(query.len())).unwrap_or_default();
    for pair in query.split(|byte| *byte == b'&') {
        let middle = pair.iter().position(|byte| *byte == b'=');
        let (key, value) = pair.split_at(middle.unwrap_or(pair.len()));
        match plain(key) {
            None => return Found::Missing,
            Some(key) if key == name.as_bytes() => {
                let value = plain(value.strip_prefix(b"=").unwrap_or_default());
                return value.map_or(Found::Missing, |value| Found::Value(Cow::Owned(value)));
            }
            Some(_) => {}
        }
    }
    Found::Missing
}

fn plain(text: &[u8]) -> Option<Vec<u8>> {
    let spaced: Vec<u8> = text
        .iter()
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    decoded(&spaced).map(Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_parameter_of_the_name_counts_however_it_is_written() {
        let value = |text: &str| Found::Value(Cow::Owned(text.as_bytes().to_vec()));
        let rows = [
            ("/", Found::Missing),
            ("/?", Found::Missing),
            ("/?tenant", value("")),
            ("/?tenant=", value("")),
            ("/?tenant=acme", value("acme")),
            ("/?a=1&tenant=acme&tenant=other", value("acme")),
            ("/?ten%61nt=ac%6De+inc", value("acme inc")),
            ("/?tenant=a=b", value("a=b")),
            ("/?tenant=a%2526b", value("a%26b")),
            ("/?tenant=acme#tenant=other", value("acme")),
            ("/?Tenant=acme", Found::Missing),
            ("/?tenant=50%", Found::Missing),
            ("/?t%enant=acme", Found::Missing),
            ("/tenant=acme", Found::Missing),
        ];
        for (path, want) in rows {
            assert_eq!(parameter(path.as_bytes(), "tenant"), want, "{path}");
        }
    }
}
