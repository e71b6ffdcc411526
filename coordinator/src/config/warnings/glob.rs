//! Globs that match every scope that another glob matches, and globs that match none of some scopes.
//!
//! A glob without its alternatives is a [`Sequence`] of sets of bytes and of wildcards. One covers
//! another if it matches that as a text, a wildcard being a letter that only a wildcard matches. Two
//! overlap if both match some text. A glob that is too large for this, or has a rarer form, is left
//! out: nothing is said of it.

use std::collections::{BTreeSet, HashMap};
use std::iter::Peekable;
use std::str::Chars;

/// The most combinations of alternatives of a glob.
const SEQUENCES_MAX: usize = 16;

/// The most comparisons of two sequences for a file: about a second.
const COMPARISONS_MAX: usize = 1_000_000;

/// Part of a glob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// One byte of a set.
    One(ByteSet),
    /// Any bytes.
    Any,
}

/// A set of bytes, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ByteSet([u64; 4]);

/// One combination of a glob's alternatives.
pub(super) type Sequence = Vec<Token>;

/// The matches that come first so far, to compare later globs with.
#[derive(Debug, Default)]
pub(super) struct EarlierMatches {
    /// By the bytes with which all that a sequence matches begins: the index of its limit.
    by_prefix: HashMap<Vec<u8>, Vec<(usize, Sequence)>>,
    comparisons: usize,
}

/// Reads a glob that the matcher has accepted.
struct GlobReader<'a> {
    rest: Peekable<Chars<'a>>,
}

// === impl EarlierMatches ===

impl EarlierMatches {
    /// Adds the scope called `scope`, to which `limits[index]` gives a limit.
    pub(super) fn add_exact(&mut self, index: usize, scope: &str) {
        self.push(index, exact(scope));
    }

    /// Adds the glob of `limits[index]`, and returns the limits that match everything that it does.
    pub(super) fn add_glob(&mut self, index: usize, glob: &str) -> Option<Vec<usize>> {
        let sequences = sequences(glob)?;
        let covering: Option<Vec<usize>> = sequences.iter().map(|one| self.covering(one)).collect();
        for sequence in sequences {
            self.push(index, sequence);
        }
        let mut covering = covering?;
        covering.sort_unstable();
        covering.dedup();
        Some(covering)
    }

    fn push(&mut self, index: usize, sequence: Sequence) {
        let prefix = self.by_prefix.entry(prefix(&sequence)).or_default();
        prefix.push((index, sequence));
    }

    /// The first limit that matches everything that `sequence` does.
    fn covering(&mut self, sequence: &[Token]) -> Option<usize> {
        let whole = prefix(sequence);
        // The prefix of a glob that covers this one is a prefix of this one.
        for len in 0..=whole.len() {
            let earlier = whole.get(..len).and_then(|part| self.by_prefix.get(part));
            for (index, broad) in earlier.into_iter().flatten() {
                self.comparisons += 1;
                if self.comparisons > COMPARISONS_MAX {
                    return None;
                }
                if covers(broad, sequence) {
                    return Some(*index);
                }
            }
        }
        None
    }
}

// === impl ByteSet ===

impl ByteSet {
    const ALL: Self = Self([u64::MAX; 4]);

    fn of(byte: u8) -> Self {
        let mut set = Self::default();
        set.insert(byte);
        set
    }

    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
    }

    fn inverse(self) -> Self {
        Self(self.0.map(|bits| !bits))
    }

    fn contains_all(self, other: Self) -> bool {
        let mut words = self.0.into_iter().zip(other.0);
        words.all(|(own, other)| other & !own == 0)
    }

    fn meets(self, other: Self) -> bool {
        let mut words = self.0.into_iter().zip(other.0);
        words.any(|(own, other)| own & other != 0)
    }

    /// The byte of a set of one.
    fn single(self) -> Option<u8> {
        let count: u32 = self.0.iter().map(|bits| bits.count_ones()).sum();
        let byte = (0..=u8::MAX).find(|byte| self.contains_all(Self::of(*byte)));
        byte.filter(|_| count == 1)
    }
}

// === impl GlobReader ===

impl GlobReader<'_> {
    /// Reads up to the end, or to that of an alternative; `None` if there are too many sequences.
    fn sequences(&mut self, in_braces: bool) -> Option<Vec<Sequence>> {
        let mut all = vec![Sequence::new()];
        while let Some(next) = self
            .rest
            .next_if(|c| !(in_braces && [',', '}'].contains(c)))
        {
            let parts = match next {
                '{' => self.alternatives()?,
                '[' => vec![vec![Token::One(self.class()?)]],
                '?' => vec![vec![Token::One(ByteSet::ALL)]],
                '*' => vec![vec![Token::Any]],
                '\\' => vec![literal(self.rest.next()?)],
                letter => vec![literal(letter)],
            };
            if all.len() * parts.len() > SEQUENCES_MAX {
                return None;
            }
            let with = |before: &Sequence| {
                let joined = parts.iter().map(|part| [&before[..], part].concat());
                joined.collect::<Vec<_>>()
            };
            all = all.iter().flat_map(with).collect();
        }
        Some(all)
    }

    /// Reads alternatives behind `{`. As in the matcher, one that is empty is none.
    fn alternatives(&mut self) -> Option<Vec<Sequence>> {
        let mut all = Vec::new();
        loop {
            let one = self.sequences(true)?;
            all.extend(one.into_iter().filter(|sequence| !sequence.is_empty()));
            match self.rest.next() {
                Some(',') => {}
                _ => break,
            }
        }
        if all.is_empty() {
            all.push(Sequence::new());
        }
        Some(all)
    }

    /// Reads a class behind `[`; `None` if it has more than ASCII.
    fn class(&mut self) -> Option<ByteSet> {
        let negated = self.rest.next_if(|c| ['!', '^'].contains(c)).is_some();
        let mut letters = vec![self.rest.next()?];
        letters.extend(std::iter::from_fn(|| self.rest.next_if(|c| *c != ']')));
        self.rest.next()?;
        if letters.iter().any(|c| !c.is_ascii() || *c == '\\') {
            return None;
        }
        let bytes: Vec<u8> = letters
            .into_iter()
            .filter_map(|c| c.try_into().ok())
            .collect();
        let mut set = ByteSet::default();
        let mut rest = &bytes[..];
        while let Some((first, after)) = rest.split_first() {
            let (last, after) = match after {
                [b'-', last, after @ ..] if *first != b'-' => (last, after),
                after => (first, after),
            };
            (*first..=*last).for_each(|byte| set.insert(byte));
            rest = after;
        }
        Some(if negated { set.inverse() } else { set })
    }
}

// === free functions ===

/// The sequence that matches `text` alone.
pub(super) fn exact(text: &str) -> Sequence {
    let bytes = text.bytes();
    bytes.map(|byte| Token::One(ByteSet::of(byte))).collect()
}

/// The sequences of `glob`, in their normal form; `None` for one that is too large or too rare.
pub(super) fn sequences(glob: &str) -> Option<Vec<Sequence>> {
    // At the end `/**` is anything below, as `/*` is here; elsewhere `**` has meanings of its own.
    let glob = match glob.strip_suffix("**") {
        Some("") => "*".to_owned(),
        Some(folder) if folder.ends_with('/') => format!("{folder}*"),
        _ => glob.to_owned(),
    };
    if glob.contains("**") {
        return None;
    }
    let rest = glob.chars().peekable();
    let all = GlobReader { rest }.sequences(false)?;
    Some(all.into_iter().map(normal).collect())
}

fn literal(letter: char) -> Sequence {
    exact(letter.encode_utf8(&mut [0; 4]))
}

/// `sequence` with one wildcard behind the single bytes where several stand together.
fn normal(sequence: Sequence) -> Sequence {
    let mut normal = Sequence::with_capacity(sequence.len());
    for token in sequence {
        match (normal.last(), token) {
            (Some(Token::Any), Token::Any) => {}
            (Some(Token::Any), Token::One(ByteSet::ALL)) => {
                normal.pop();
                normal.extend([token, Token::Any]);
            }
            _ => normal.push(token),
        }
    }
    normal
}

/// The bytes with which everything begins that `sequence` matches.
fn prefix(sequence: &[Token]) -> Vec<u8> {
    let byte = |token: &Token| match token {
        Token::One(set) => set.single(),
        Token::Any => None,
    };
    sequence.iter().map_while(byte).collect()
}

/// Whether `broad` matches everything that `narrow` does.
fn covers(broad: &[Token], narrow: &[Token]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // Behind the last wildcard, and the number of tokens that it stands for.
    let mut last_any = None;
    while let Some(token) = narrow.get(seen) {
        match (broad.get(at), token) {
            (Some(Token::Any), _) => {
                at += 1;
                last_any = Some((at, seen));
            }
            (Some(Token::One(own)), Token::One(other)) if own.contains_all(*other) => {
                at += 1;
                seen += 1;
            }
            _ => {
                let Some((behind, taken)) = last_any else {
                    return false;
                };
                at = behind;
                seen = taken + 1;
                last_any = Some((behind, seen));
            }
        }
    }
    let mut rest = broad.get(at..).unwrap_or_default().iter();
    rest.all(|token| *token == Token::Any)
}

/// Whether some text is matched by `one` and by `other`.
pub(super) fn overlap(one: &[Token], other: &[Token]) -> bool {
    // The places in `other` up to which it matches a text that `one` matches so far.
    let mut places = BTreeSet::from([0]);
    skip_wildcards(&mut places, other);
    for token in one {
        let next = |at: &usize| match (token, other.get(*at)) {
            (Token::Any, _) => *at..other.len() + 1,
            (Token::One(_), Some(Token::Any)) => *at..*at + 1,
            (Token::One(own), Some(Token::One(their))) if own.meets(*their) => *at + 1..*at + 2,
            (Token::One(_), _) => 0..0,
        };
        places = places.iter().flat_map(next).collect();
        if places.is_empty() {
            return false;
        }
        skip_wildcards(&mut places, other);
    }
    places.contains(&other.len())
}

/// Adds to `places` those that are reached over a wildcard that stands for nothing.
fn skip_wildcards(places: &mut BTreeSet<usize>, sequence: &[Token]) {
    for (at, token) in sequence.iter().enumerate() {
        if *token == Token::Any && places.contains(&at) {
            places.insert(at + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use globset::GlobBuilder;

    use super::*;

    const GLOBS: [&str; 26] = [
        "*", "a*", "*a", "*a*", "?", "??", "?*", "*?", "a?", "?a*", "a*b", "a*a", "[ab]", "[!a]*",
        "[a-b]*", "{a,b}", "{a,b}*", "a{,b}", "a{b,*}", r"\*", "/*", "a/**", "a/*", "**", "[]a]",
        "{a*,?b}",
    ];

    /// Those of `texts` that `glob` matches, by their indexes.
    fn matched(glob: &str, texts: &[String]) -> BTreeSet<usize> {
        let mut builder = GlobBuilder::new(glob);
        let builder = builder.literal_separator(false).backslash_escape(true);
        let matcher = builder.build().unwrap().compile_matcher();
        let texts = texts.iter().enumerate();
        let matched = texts.filter(|(_, text)| matcher.is_match(text));
        matched.map(|(i, _)| i).collect()
    }

    fn covering(globs: &[&str]) -> Option<Vec<usize>> {
        let mut earlier = EarlierMatches::default();
        let indexed = globs.iter().enumerate();
        indexed.map(|(i, glob)| earlier.add_glob(i, glob)).last()?
    }

    /// All texts of up to four of some letters.
    fn texts() -> Vec<String> {
        let mut texts = vec![String::new()];
        for len in 0..4 {
            let longest: Vec<_> = texts
                .iter()
                .filter(|text| text.len() == len)
                .cloned()
                .collect();
            for text in longest {
                texts.extend(["a", "b", "/", "]", "*"].map(|letter| format!("{text}{letter}")));
            }
        }
        texts
    }

    /// A warning must be true: it makes people delete the limit.
    #[test]
    fn a_glob_that_is_covered_matches_nothing_else() {
        let texts = texts();
        let matched: BTreeMap<_, _> = GLOBS.map(|glob| (glob, matched(glob, &texts))).into();
        let mut covered = 0;
        for (broad, in_broad) in &matched {
            for (narrow, in_narrow) in &matched {
                let is_covered = covering(&[broad, narrow]).is_some();
                let true_of_all = in_narrow.is_subset(in_broad);
                covered += usize::from(is_covered);
                assert!(!is_covered || true_of_all, "{broad} {narrow}");
                // Two alternatives may cover one only together, and `?*` another's wildcard only
                // because of what is behind that.
                let is_hard = broad.starts_with('{') || broad.contains('?');
                assert!(
                    is_covered || !true_of_all || is_hard,
                    "{broad} {narrow}: missed"
                );
            }
        }
        assert!(covered > 2 * GLOBS.len(), "{covered}");
    }

    /// All of these globs match a text of up to four letters, so the texts show each overlap.
    #[test]
    fn globs_overlap_if_a_text_is_matched_by_both() {
        let texts = texts();
        let mut apart = 0;
        for (one, other) in GLOBS
            .iter()
            .flat_map(|one| GLOBS.map(|other| (*one, other)))
        {
            let both = matched(one, &texts)
                .intersection(&matched(other, &texts))
                .count()
                > 0;
            let (of_one, of_other) = (sequences(one).unwrap(), sequences(other).unwrap());
            let mut pairs = of_one
                .iter()
                .flat_map(|a| of_other.iter().map(move |b| (a, b)));
            assert_eq!(pairs.any(|(a, b)| overlap(a, b)), both, "{one} {other}");
            apart += usize::from(!both);
        }
        assert!(apart > GLOBS.len(), "{apart}");
    }

    #[test]
    fn several_may_cover_one_together() {
        let rows: [(&[&str], Option<&[usize]>); 8] = [
            (&["tenant/a*", "x/*", "{tenant/ab,x/y}*"], Some(&[0, 1])),
            (&["tenant/a*", "{tenant/ab,x/y}*"], None),
            (&["tenant/*", "tenant/acme-*"], Some(&[0])),
            (&["tenant/acme-*", "tenant/*"], None),
            (&["tenant/**", "tenant/[0-9]*"], Some(&[0])),
            (&["*/ü", "a/?"], None),
            (&["a/??", "a/ü{,}"], Some(&[0])),
            (&["**/a", "a/a*"], None),
        ];
        for (globs, want) in rows {
            assert_eq!(covering(globs).as_deref(), want, "{globs:?}");
        }
    }

    #[test]
    fn exact_scopes_cover_a_glob_that_lists_them() {
        let mut earlier = EarlierMatches::default();
        earlier.add_exact(0, "a/x");
        earlier.add_exact(1, "a/y");
        assert_eq!(earlier.add_glob(2, "a/{x,y}"), Some(vec![0, 1]));
        assert_eq!(earlier.add_glob(3, "a/[x-z]"), None);
    }

    #[test]
    fn no_file_takes_long() {
        let mut earlier = EarlierMatches::default();
        for i in 0..10_000 {
            assert_eq!(earlier.add_glob(i, &format!("*{i:05}?")), None);
        }
        assert!(earlier.comparisons > COMPARISONS_MAX);
        assert_eq!(earlier.add_glob(0, &"{a,b}".repeat(5)), None);
    }
}
