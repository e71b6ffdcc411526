use super::*;
use crate::Config;
use crate::catalog::spec::{AttachmentSpec, GroupSpec, LimitsSpec};
use crate::catalog::store::{MemoryStore, RecordKind, StoreContent};
use crate::catalog::{GroupKind, MemberKind, OverrideKind, Precondition};

mod several;

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
    async fn load(&mut self) -> Result<StoreContent, StoreError> {
        self.inner.load().await
    }

    async fn apply(&mut self, batch: WriteBatch) -> Result<ApplyOutcome, StoreError> {
        if self.broken.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(StoreError::Failed {
                store: "test".to_owned(),
                cause: "broken".to_owned(),
            });
        }
        self.inner.apply(batch).await
    }
}

async fn writer_of(store: impl Store + 'static, file: &str) -> CatalogHandle {
    let file = Config::parse(file).unwrap();
    let metrics = CatalogMetrics::default();
    let writer = CatalogWriter::new(Box::new(store), file, Clock::start(), metrics).await;
    let (writer, handle) = writer.unwrap();
    tokio::spawn(writer.run());
    handle
}

async fn writer() -> CatalogHandle {
    writer_of(MemoryStore::default(), FILE).await
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

const ANY: Precondition = Precondition::Anything;
const TENANT: MemberKind = MemberKind::Tenant;

/// The error of a refused write.
fn said<T: std::fmt::Debug>(result: Result<T, WriteError>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test]
async fn a_write_is_in_the_catalog_when_it_is_answered() {
    let writer = writer().await;
    let created = writer.put(GroupKind, "gold", group(5), ANY).await.unwrap();
    assert!(created.created);
    let gold = writer.catalog().group("gold").unwrap();
    assert_eq!(gold.revision, Some(created.revision));
    let replaced = writer.put(GroupKind, "gold", group(6), ANY).await.unwrap();
    assert!(!replaced.created && replaced.revision > created.revision);
    let gold = writer.catalog().group("gold").unwrap();
    assert_eq!(gold.value.spec(), group(6));

    writer
        .put(TENANT, "acme", attach("gold"), ANY)
        .await
        .unwrap();
    assert_eq!(
        &*writer.catalog().find(TENANT, "acme").unwrap().value.group,
        "gold"
    );
    writer
        .put(OverrideKind, "tenant/x", limits(7), ANY)
        .await
        .unwrap();
    assert_eq!(
        writer
            .catalog()
            .find(OverrideKind, "tenant/x")
            .unwrap()
            .value
            .spec(),
        limits(7)
    );

    writer.delete(OverrideKind, "tenant/x", ANY).await.unwrap();
    writer.delete(TENANT, "acme", ANY).await.unwrap();
    writer.delete(GroupKind, "gold", ANY).await.unwrap();
    let catalog = writer.catalog();
    assert!(catalog.find(OverrideKind, "tenant/x").is_none());
    assert!(catalog.find(TENANT, "acme").is_none());
    assert!(catalog.group("gold").is_none());
    assert_eq!(
        said(writer.delete(GroupKind, "gold", ANY).await),
        "there is no such group"
    );
}

#[tokio::test]
async fn a_group_in_use_is_not_deleted() {
    let writer = writer().await;
    writer.put(GroupKind, "gold", group(5), ANY).await.unwrap();
    writer
        .put(GroupKind, "silver", group(5), ANY)
        .await
        .unwrap();
    writer
        .put(TENANT, "acme", attach("gold"), ANY)
        .await
        .unwrap();
    let message = said(writer.delete(GroupKind, "gold", ANY).await);
    assert_eq!(
        message,
        "1 are attached to this group, such as the tenant \"acme\""
    );
    assert_eq!(writer.catalog().attached_count("gold"), 1);
    // Attached to another group, it no longer holds the first.
    writer
        .put(TENANT, "acme", attach("silver"), ANY)
        .await
        .unwrap();
    writer.delete(GroupKind, "gold", ANY).await.unwrap();
    assert_eq!(writer.catalog().attached_count("silver"), 1);
}

#[tokio::test]
async fn what_does_not_go_with_what_is_there_is_refused() {
    let writer = writer().await;
    let to_nowhere = writer.put(TENANT, "acme", attach("gold"), ANY).await;
    assert_eq!(said(to_nowhere), "there is no group called \"gold\"");
    let file = "the configuration file defines this";
    let rows = [
        (writer.put(GroupKind, "file", group(1), ANY).await, "group"),
        (writer.delete(GroupKind, "file", ANY).await, "group"),
        (
            writer.put(TENANT, "fixed", attach("file"), ANY).await,
            "attachment",
        ),
        (writer.delete(TENANT, "fixed", ANY).await, "attachment"),
        (
            writer
                .put(OverrideKind, "tenant/fixed", limits(1), ANY)
                .await,
            "scope's limits",
        ),
        (
            writer.delete(OverrideKind, "tenant/fixed", ANY).await,
            "scope's limits",
        ),
    ];
    for (result, what) in rows {
        assert_eq!(said(result), format!("{file} {what}: change the file"));
    }
    let invalid = writer.put(GroupKind, "a/b", group(1), ANY).await;
    assert!(
        matches!(invalid, Err(WriteError::Invalid(_))),
        "{invalid:?}"
    );
    let invalid = writer
        .put(OverrideKind, "tenant/x", LimitsSpec::default(), ANY)
        .await;
    assert!(said(invalid).starts_with("names no unit"));
}

#[tokio::test]
async fn a_write_happens_only_if_what_is_there_is_as_expected() {
    let writer = writer().await;
    let put = async |expect| writer.put(GroupKind, "gold", group(1), expect).await;
    assert_eq!(
        said(put(Precondition::Something).await),
        "it does not exist"
    );
    assert_eq!(
        said(put(Precondition::Revision(1)).await),
        "it does not exist"
    );
    let first = put(Precondition::Nothing).await.unwrap().revision;
    let there = format!("the current revision is {first}");
    assert_eq!(said(put(Precondition::Nothing).await), there);
    assert_eq!(said(put(Precondition::Revision(first + 1)).await), there);
    let second = put(Precondition::Revision(first)).await.unwrap().revision;
    let lost = writer
        .delete(GroupKind, "gold", Precondition::Revision(first))
        .await;
    assert_eq!(said(lost), format!("the current revision is {second}"));
    writer
        .delete(GroupKind, "gold", Precondition::Something)
        .await
        .unwrap();
    // A revision is never used twice, so that of the deleted group does not match the new one.
    assert!(put(ANY).await.unwrap().revision > second);
}

#[tokio::test]
async fn one_of_many_writers_who_expect_the_same_wins() {
    let writer = writer().await;
    let first = writer
        .put(GroupKind, "gold", group(1), ANY)
        .await
        .unwrap()
        .revision;
    let mut writers = tokio::task::JoinSet::new();
    for rate in 0..50 {
        let writer = writer.clone();
        let expect = Precondition::Revision(first);
        writers.spawn(async move {
            writer
                .put(GroupKind, "gold", group(rate), expect)
                .await
                .is_ok()
        });
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
    let writer = writer().await;
    for name in ["a", "b"] {
        writer.put(GroupKind, name, group(1), ANY).await.unwrap();
        writer.put(TENANT, name, attach("a"), ANY).await.unwrap();
    }
    writer
        .put(OverrideKind, "tenant/x", limits(1), ANY)
        .await
        .unwrap();
    let tail = "the most this coordinator keeps";
    let refused = said(writer.put(GroupKind, "c", group(1), ANY).await);
    assert_eq!(
        refused,
        format!("there are 2 groups, {tail} (bounds.max_groups)")
    );
    let namespace = writer
        .put(MemberKind::Namespace, "c/d", attach("a"), ANY)
        .await;
    let want = format!("there are 2 attachments, {tail} (bounds.max_attachments)");
    assert_eq!(said(namespace), want);
    let refused = said(writer.put(OverrideKind, "tenant/y", limits(1), ANY).await);
    assert_eq!(
        refused,
        format!("there are 1 overrides, {tail} (bounds.max_overrides)")
    );
    // An object can still be replaced, and room made.
    writer.put(GroupKind, "b", group(2), ANY).await.unwrap();
    writer.delete(TENANT, "b", ANY).await.unwrap();
    writer.put(TENANT, "c", attach("a"), ANY).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_made_durable_is_not_in_force() {
    let store = Fragile::default();
    let broken = store.broken.clone();
    let writer = writer_of(store, FILE).await;
    let first = writer
        .put(GroupKind, "gold", group(1), ANY)
        .await
        .unwrap()
        .revision;
    broken.store(true, std::sync::atomic::Ordering::Relaxed);
    let failed = writer.put(GroupKind, "gold", group(2), ANY).await;
    assert_eq!(said(failed), "the store test: broken");
    assert_eq!(
        writer.catalog().group("gold").unwrap().value.spec(),
        group(1)
    );
    broken.store(false, std::sync::atomic::Ordering::Relaxed);
    let expect = Precondition::Revision(first);
    writer
        .put(GroupKind, "gold", group(3), expect)
        .await
        .unwrap();
}

#[tokio::test]
async fn another_file_takes_the_place_of_the_first_or_is_refused_whole() {
    let writer = writer().await;
    writer.put(GroupKind, "gold", group(1), ANY).await.unwrap();
    writer
        .put(TENANT, "acme", attach("file"), ANY)
        .await
        .unwrap();
    let parse = |text: &str| Config::parse(text).unwrap();
    let lost = writer.reload(parse("limits: []")).await;
    let want = "1 are attached to this group, such as the tenant \"acme\"";
    assert_eq!(said(lost), want);
    assert!(writer.catalog().group("file").is_some());

    let file = "limits: []\ngroups: {file: {}, gold: {requests: {rate: 99}}}\n";
    writer.reload(parse(file)).await.unwrap();
    let catalog = writer.catalog();
    assert_eq!(catalog.group("gold").unwrap().revision, None);
    let names: Vec<_> = catalog
        .list(GroupKind, "")
        .map(|entry| entry.name)
        .collect();
    assert_eq!(names, ["file".into(), "gold".into()]);
    assert!(catalog.find(TENANT, "fixed").is_none());
    writer
        .reload(parse("limits: []\ngroups: {file: {}}\n"))
        .await
        .unwrap();
    assert_eq!(
        writer.catalog().group("gold").unwrap().value.spec(),
        group(1)
    );
}

#[tokio::test]
async fn lists_go_on_after_a_name_with_what_the_file_says_among_the_rest() {
    let file = "limits: []\ngroups: {b: {}, d: {}}\nattach: {tenants: {m: b}}\n";
    let writer = writer_of(MemoryStore::default(), file).await;
    for name in ["a", "c", "e"] {
        writer.put(GroupKind, name, group(1), ANY).await.unwrap();
        writer.put(TENANT, name, attach("b"), ANY).await.unwrap();
    }
    let catalog = writer.catalog();
    let groups = |after| {
        let names = catalog
            .list(GroupKind, after)
            .map(|entry| entry.name.as_ref().to_owned());
        names.collect::<Vec<_>>().join("")
    };
    assert_eq!(
        [groups(""), groups("b"), groups("bb"), groups("e")],
        ["abcde", "cde", "cde", ""]
    );
    let tenants: Vec<_> = catalog.list(TENANT, "c").map(|entry| entry.name).collect();
    assert_eq!(tenants, ["e".into(), "m".into()]);
    assert_eq!(catalog.attached_count("b"), 4);
}
