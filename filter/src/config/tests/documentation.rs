//! The pages of the filter, held against its parser.

use std::collections::BTreeSet;

use super::*;
use crate::config::fields::ASKED_FOR;

const PAGE: &str = include_str!("../../../../docs/filter.md");
const TASKS: &str = include_str!("../../../../docs/filter-tasks.md");

/// The blocks of JSON on both pages.
fn examples() -> impl Iterator<Item = &'static str> {
    let blocks = [PAGE, TASKS].map(|page| page.split("```json").skip(1));
    let blocks = blocks.into_iter().flatten();
    blocks.map(|block| block.split("```").next().unwrap())
}

/// The paths of the fields that the parser asks for in the examples, and in one that is on no page.
pub(super) fn asked_for() -> BTreeSet<String> {
    ASKED_FOR.take();
    parse(&named(r#""missing": {"default": "none"}"#)).unwrap();
    for example in examples() {
        parse(example).unwrap();
    }
    ASKED_FOR.take()
}

/// The first cells of the tables below a heading, with the cells beside them.
fn rows(heading: &str) -> Vec<(&'static str, &'static str)> {
    let after = PAGE.split_once(&format!("\n## {heading}\n")).unwrap().1;
    let section = after.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut cells = row.split(" | ");
        let name = cells.next().unwrap().trim_matches(['|', '`', ' ']);
        (name, cells.next().unwrap())
    })
    .collect()
}

#[test]
fn every_example_is_taken_and_has_no_unknown_field() {
    assert!(examples().count() >= 5);
    for example in examples() {
        let (_, unknown) = parse(example).unwrap_or_else(|error| panic!("{error}: {example}"));
        assert!(unknown.is_empty(), "{unknown:?}: {example}");
    }
}

#[test]
fn every_field_of_the_parser_is_on_the_page_and_no_other() {
    let paths = asked_for();
    let names = paths.iter().filter_map(|path| path.rsplit('.').next());
    let known: BTreeSet<&str> = names.collect();
    for name in &known {
        let mentioned = [format!("`{name}`"), format!("\"{name}\"")];
        let mentioned = mentioned.iter().any(|text| PAGE.contains(text));
        assert!(mentioned, "{name} is not documented");
    }
    for heading in ["All of it", "A scope rule", "Conditions"] {
        let rows = rows(heading);
        assert!(!rows.is_empty());
        for (name, _) in rows {
            assert!(known.contains(name), "there is no field {name}");
        }
    }
}

#[test]
fn the_defaults_on_the_page_are_those_of_the_parser() {
    // A configuration that says what is documented is the one that says nothing.
    let scope = r#""name": "a", "key": {"constant": "x"}"#;
    let fields = |heading| {
        let rows = rows(heading).into_iter();
        let shown = rows.filter(|(_, cell)| {
            !["required", "all", "as ", "429"]
                .iter()
                .any(|word| cell.starts_with(word))
        });
        shown
            .map(|(name, cell)| format!(", \"{name}\": {}", cell.trim_matches('`')))
            .collect::<String>()
    };
    let plain = format!(r#"{{"coordinator": "c", "scopes": [{{{scope}}}]}}"#);
    let shown = format!(
        r#"{{"coordinator": "c", "scopes": [{{{scope}{}}}]{}}}"#,
        fields("A scope rule"),
        fields("All of it"),
    );
    assert!(
        shown.contains("max_scopes") && shown.contains("on_overflow"),
        "{shown}"
    );
    let (plain, shown) = (parse(&plain).unwrap(), parse(&shown).unwrap());
    assert_eq!(plain, shown);
}
