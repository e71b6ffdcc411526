use super::*;
use crate::catalog::spec::{AttachmentSpec, GroupSpec, LimitsSpec};
use crate::catalog::store::{KeyKind, MemoryStore, Stored};
use crate::catalog::{Expect, Kind};
use crate::config::Config;
use tollgate_core::lease::Epoch;

mod shared;

const FILE: &str = "
limits: [{match: tenant/fixed, requests: {rate: 5}}]
groups: {file: {requests: {rate: 10}}}
attach: {tenants: {fixed: file}}
bounds: {max_groups: 2, max_attachments: 2, max_overrides: 1}
";

/// A store that breaks when it is told to.
#[derive(Debug, Default)]
struct Fragile {
    inner: MemoryStore,
    broken: Arc<std::sync::atomic::AtomicBool>,
}

#[tonic::async_trait]
impl Store for Fragile {
    async fn load(&mut self) -> Result<Stored, StoreError> {
        self.inner.load().await
    }

    async fn apply(&mut self, batch: Batch) -> Result<Applied, StoreError> {
        if self.broken.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(StoreError::Failed {
                store: "test".to_owned(),
                cause: "broken".to_owned(),
            });
        }
        self.inner.apply(batch).await
    }
}

async fn keeper_of(store: impl Store + 'static, file: &str) -> Handle {
    let file = Config::parse(file).unwrap();
    let metrics = Metrics::new(Epoch(1), 1);
    let keeper = Keeper::new(Box::new(store), file, Clock::start(), metrics).await;
    let (keeper, handle) = keeper.unwrap();
    tokio::spawn(keeper.run());
    handle
}

async fn keeper() -> Handle {
    keeper_of(MemoryStore::default(), FILE).await
}

fn group(rate: u32) -> GroupSpec {
    let json = format!("{{\"requests\": {{\"rate\": {rate}}}}}");
    serde_json::from_str(&json).unwrap()
}

fn attach(group: &str) -> AttachmentSpec {
    serde_json::from_str(&format!("{{\"group\": \"{group}\"}}")).unwrap()
}

fn limits(rate: u32) -> LimitsSpec {
    let json = format!("{{\"requests\": {{\"rate\": {rate}}}}}");
    serde_json::from_str(&json).unwrap()
}

const ANY: Expect = Expect::Anything;
const TENANT: Kind = Kind::Tenant;

/// What is said of a write that was refused.
fn said<T: std::fmt::Debug>(result: Result<T, WriteError>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test]
async fn a_write_is_in_the_catalog_when_it_is_answered() {
    let keeper = keeper().await;
    let created = keeper.put_group("gold", group(5), ANY).await.unwrap();
    assert!(created.created);
    let seen = keeper.catalog().group("gold").unwrap();
    assert_eq!(seen.revision, Some(created.revision));
    let replaced = keeper.put_group("gold", group(6), ANY).await.unwrap();
    assert!(!replaced.created && replaced.revision > created.revision);
    let seen = keeper.catalog().group("gold").unwrap();
    assert_eq!(seen.value.spec(), group(6));

    keeper
        .put_attachment(TENANT, "acme", attach("gold"), ANY)
        .await
        .unwrap();
    assert_eq!(
        &*keeper
            .catalog()
            .attachment(TENANT, "acme")
            .unwrap()
            .value
            .group,
        "gold"
    );
    keeper
        .put_override("tenant/x", limits(7), ANY)
        .await
        .unwrap();
    assert_eq!(
        keeper
            .catalog()
            .overridden("tenant/x")
            .unwrap()
            .value
            .spec(),
        limits(7)
    );

    keeper.delete_override("tenant/x", ANY).await.unwrap();
    keeper.delete_attachment(TENANT, "acme", ANY).await.unwrap();
    keeper.delete_group("gold", ANY).await.unwrap();
    let catalog = keeper.catalog();
    assert!(catalog.overridden("tenant/x").is_none());
    assert!(catalog.attachment(TENANT, "acme").is_none());
    assert!(catalog.group("gold").is_none());
    assert_eq!(
        said(keeper.delete_group("gold", ANY).await),
        "there is no such group"
    );
}

#[tokio::test]
async fn a_group_in_use_is_not_deleted() {
    let keeper = keeper().await;
    keeper.put_group("gold", group(5), ANY).await.unwrap();
    keeper.put_group("silver", group(5), ANY).await.unwrap();
    keeper
        .put_attachment(TENANT, "acme", attach("gold"), ANY)
        .await
        .unwrap();
    let said = said(keeper.delete_group("gold", ANY).await);
    assert_eq!(
        said,
        "1 are attached to this group, such as the tenant \"acme\""
    );
    assert_eq!(keeper.catalog().attached_count("gold"), 1);
    // Attached elsewhere, it no longer holds the first.
    keeper
        .put_attachment(TENANT, "acme", attach("silver"), ANY)
        .await
        .unwrap();
    keeper.delete_group("gold", ANY).await.unwrap();
    assert_eq!(keeper.catalog().attached_count("silver"), 1);
}

#[tokio::test]
async fn what_does_not_go_with_what_is_there_is_refused() {
    let keeper = keeper().await;
    let to_nowhere = keeper
        .put_attachment(TENANT, "acme", attach("gold"), ANY)
        .await;
    assert_eq!(said(to_nowhere), "there is no group called \"gold\"");
    let file = "the configuration file defines this";
    let rows = [
        (keeper.put_group("file", group(1), ANY).await, "group"),
        (keeper.delete_group("file", ANY).await, "group"),
        (
            keeper
                .put_attachment(TENANT, "fixed", attach("file"), ANY)
                .await,
            "attachment",
        ),
        (
            keeper.delete_attachment(TENANT, "fixed", ANY).await,
            "attachment",
        ),
        (
            keeper.put_override("tenant/fixed", limits(1), ANY).await,
            "scope's limits",
        ),
        (
            keeper.delete_override("tenant/fixed", ANY).await,
            "scope's limits",
        ),
    ];
    for (result, what) in rows {
        assert_eq!(said(result), format!("{file} {what}: change the file"));
    }
    let invalid = keeper.put_group("a/b", group(1), ANY).await;
    assert!(
        matches!(invalid, Err(WriteError::Invalid(_))),
        "{invalid:?}"
    );
    let invalid = keeper
        .put_override("tenant/x", LimitsSpec::default(), ANY)
        .await;
    assert!(said(invalid).starts_with("names no unit"));
}

#[tokio::test]
async fn a_write_happens_only_if_what_is_there_is_as_expected() {
    let keeper = keeper().await;
    let put = async |expect| keeper.put_group("gold", group(1), expect).await;
    assert_eq!(said(put(Expect::Something).await), "nothing is there");
    assert_eq!(said(put(Expect::Revision(1)).await), "nothing is there");
    let first = put(Expect::Nothing).await.unwrap().revision;
    let there = format!("what is there is revision {first}");
    assert_eq!(said(put(Expect::Nothing).await), there);
    assert_eq!(said(put(Expect::Revision(first + 1)).await), there);
    let second = put(Expect::Revision(first)).await.unwrap().revision;
    let lost = keeper.delete_group("gold", Expect::Revision(first)).await;
    assert_eq!(said(lost), format!("what is there is revision {second}"));
    keeper
        .delete_group("gold", Expect::Something)
        .await
        .unwrap();
    // A revision is never given twice, so what was expected of the old group does not fit the new.
    assert!(put(ANY).await.unwrap().revision > second);
}

#[tokio::test]
async fn one_of_many_writers_who_expect_the_same_wins() {
    let keeper = keeper().await;
    let first = keeper
        .put_group("gold", group(1), ANY)
        .await
        .unwrap()
        .revision;
    let mut writers = tokio::task::JoinSet::new();
    for rate in 0..50 {
        let keeper = keeper.clone();
        let expect = Expect::Revision(first);
        writers.spawn(async move { keeper.put_group("gold", group(rate), expect).await.is_ok() });
    }
    let won = writers
        .join_all()
        .await
        .into_iter()
        .filter(|won| *won)
        .count();
    assert_eq!(won, 1);
}

#[tokio::test]
async fn every_bound_is_a_clear_refusal() {
    let keeper = keeper().await;
    for name in ["a", "b"] {
        keeper.put_group(name, group(1), ANY).await.unwrap();
        keeper
            .put_attachment(TENANT, name, attach("a"), ANY)
            .await
            .unwrap();
    }
    keeper
        .put_override("tenant/x", limits(1), ANY)
        .await
        .unwrap();
    let tail = "the most this coordinator keeps";
    let refused = said(keeper.put_group("c", group(1), ANY).await);
    assert_eq!(
        refused,
        format!("there are 2 groups, {tail} (bounds.max_groups)")
    );
    let namespace = keeper
        .put_attachment(Kind::Namespace, "c/d", attach("a"), ANY)
        .await;
    let want = format!("there are 2 attachments, {tail} (bounds.max_attachments)");
    assert_eq!(said(namespace), want);
    let refused = said(keeper.put_override("tenant/y", limits(1), ANY).await);
    assert_eq!(
        refused,
        format!("there are 1 overrides, {tail} (bounds.max_overrides)")
    );
    // What is there can be replaced, and room made.
    keeper.put_group("b", group(2), ANY).await.unwrap();
    keeper.delete_attachment(TENANT, "b", ANY).await.unwrap();
    keeper
        .put_attachment(TENANT, "c", attach("a"), ANY)
        .await
        .unwrap();
}

#[tokio::test]
async fn what_cannot_be_made_durable_is_not_in_force() {
    let store = Fragile::default();
    let broken = store.broken.clone();
    let keeper = keeper_of(store, FILE).await;
    let first = keeper
        .put_group("gold", group(1), ANY)
        .await
        .unwrap()
        .revision;
    broken.store(true, std::sync::atomic::Ordering::Relaxed);
    let failed = keeper.put_group("gold", group(2), ANY).await;
    assert_eq!(said(failed), "the store test: broken");
    assert_eq!(
        keeper.catalog().group("gold").unwrap().value.spec(),
        group(1)
    );
    broken.store(false, std::sync::atomic::Ordering::Relaxed);
    let expect = Expect::Revision(first);
    keeper.put_group("gold", group(3), expect).await.unwrap();
}

#[tokio::test]
async fn another_file_takes_the_place_of_the_first_or_is_refused_whole() {
    let keeper = keeper().await;
    keeper.put_group("gold", group(1), ANY).await.unwrap();
    keeper
        .put_attachment(TENANT, "acme", attach("file"), ANY)
        .await
        .unwrap();
    let parse = |text: &str| Config::parse(text).unwrap();
    let lost = keeper.reload(parse("limits: []")).await;
    let want = "1 are attached to this group, such as the tenant \"acme\"";
    assert_eq!(said(lost), want);
    assert!(keeper.catalog().group("file").is_some());

    let file = "limits: []\ngroups: {file: {}, gold: {requests: {rate: 99}}}\n";
    keeper.reload(parse(file)).await.unwrap();
    let catalog = keeper.catalog();
    assert_eq!(catalog.group("gold").unwrap().revision, None);
    let names: Vec<_> = catalog.groups("").map(|entry| entry.name).collect();
    assert_eq!(names, ["file".into(), "gold".into()]);
    assert!(catalog.attachment(TENANT, "fixed").is_none());
    keeper
        .reload(parse("limits: []\ngroups: {file: {}}\n"))
        .await
        .unwrap();
    assert_eq!(
        keeper.catalog().group("gold").unwrap().value.spec(),
        group(1)
    );
}

#[tokio::test]
async fn lists_go_on_after_a_name_with_what_the_file_says_among_the_rest() {
    let file = "limits: []\ngroups: {b: {}, d: {}}\nattach: {tenants: {m: b}}\n";
    let keeper = keeper_of(MemoryStore::default(), file).await;
    for name in ["a", "c", "e"] {
        keeper.put_group(name, group(1), ANY).await.unwrap();
        keeper
            .put_attachment(TENANT, name, attach("b"), ANY)
            .await
            .unwrap();
    }
    let catalog = keeper.catalog();
    let groups = |after| {
        let names = catalog
            .groups(after)
            .map(|entry| entry.name.as_ref().to_owned());
        names.collect::<Vec<_>>().join("")
    };
    assert_eq!(
        [groups(""), groups("b"), groups("bb"), groups("e")],
        ["abcde", "cde", "cde", ""]
    );
    let tenants: Vec<_> = catalog
        .attachments(TENANT, "c")
        .map(|entry| entry.name)
        .collect();
    assert_eq!(tenants, ["e".into(), "m".into()]);
    assert_eq!(catalog.attached_count("b"), 4);
}
