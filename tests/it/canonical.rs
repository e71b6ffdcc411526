//! Scopes whose requests use the capacity of another: tenants of a group that is divided between
//! Envoys only, and namespaces that do as their tenant does. However many there are, and through
//! whichever Envoy they come, together they get what the one scope has.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tollgate_tests::conclude;
use tollgate_tests::envoy::Envoy;
use tollgate_tests::filter::{COORDINATOR, TENANT_HEADER};
use tollgate_tests::load::{Flow, Load, sum};

use crate::scene::{Scene, assert_near, assert_never_above, play, print_course, s, watch_books};

const CAPACITY: f64 = 400.0;
const BURST: f64 = 40.0;
/// What each of the two that share sends to each Envoy.
const RATES: [f64; 2] = [300.0, 60.0];

/// Whose requests share one bucket, and in which scope.
struct Case {
    config: &'static str,
    /// The rule's name; the keys are in the tenant's header.
    rule: &'static str,
    sharing: [&'static str; 2],
    alone: &'static str,
    canonical: &'static str,
}

#[test]
fn tenants_of_a_group_share_one_bucket_across_envoys() {
    play(
        "tenants_of_a_group_share_one_bucket_across_envoys",
        async |scene| {
            let case = Case {
                config: "limits: []
groups:
  team: {requests: {rate: 400, burst: 40}, fair_between: clients}
attach: {tenants: {acme: team, beta: team}}
",
                rule: "tenant",
                sharing: ["acme", "beta"],
                alone: "gamma",
                canonical: "group/team",
            };
            case.play(scene).await
        },
    );
}

#[test]
fn namespaces_share_the_bucket_of_an_attached_tenant() {
    play(
        "namespaces_share_the_bucket_of_an_attached_tenant",
        async |scene| {
            let case = Case {
                config: "limits: []
groups:
  gold: {requests: {rate: 400, burst: 40}, fair_between: members}
attach: {tenants: {acme: gold}}
",
                rule: "namespace",
                sharing: ["acme/orders", "acme/users"],
                alone: "gamma/orders",
                canonical: "tenant/acme",
            };
            case.play(scene).await
        },
    );
}

// === impl Case ===

impl Case {
    async fn play(&self, scene: &Scene) -> Result<()> {
        let coordinator = scene.coordinator(self.config).await?;
        let rule = json!({"name": self.rule, "key": {"header": TENANT_HEADER}});
        let plugin = json!({"coordinator": COORDINATOR, "scopes": [rule]});
        let envoys = [
            scene.envoy("envoy-0", 2, &coordinator, &plugin).await?,
            scene.envoy("envoy-1", 2, &coordinator, &plugin).await?,
        ];
        let load = Load::start(self.flows(&envoys));
        watch_books(&coordinator, self.canonical, &load, s(9.0)).await?;
        let books = coordinator.books(self.canonical).await?;
        let books = books.with_context(|| format!("{} is not asked for", self.canonical))?;
        ensure!(books.sum_has() <= CAPACITY + 1e-6, "{books:?}");
        let records = load.stop().await?;
        let together = sum(&records[..4]);
        print_course(self.canonical, &together);
        let seen = together.admitted_per_second(s(3.0)..s(9.0));
        assert_near("all that share", seen, CAPACITY, 0.02);
        assert_never_above(&together, CAPACITY, BURST);
        // One bucket, whoever comes: no more of it for one than its part of the requests, and less if
        // the other's happen to come first. A member of its own would get all that it sends.
        let small = sum(&records[2..4]).admitted_per_second(s(3.0)..s(9.0));
        let part = CAPACITY * RATES[1] / (RATES[0] + RATES[1]);
        conclude!(small <= part * 1.2, "{small}/s instead of at most {part}/s");
        ensure!(together.total().failed == 0, "{:?}", together.total());
        // Who is not in the group is not held to its limit, and takes nothing of it.
        let total = records[4].total();
        conclude!((total.refused, total.failed) == (0, 0), "{total:?}");
        Ok(())
    }

    /// Both names to both Envoys, more than there is; and one that has no limit.
    fn flows(&self, envoys: &[Envoy; 2]) -> Vec<Flow> {
        let mut flows = Vec::new();
        for (name, rate) in self.sharing.iter().zip(RATES) {
            flows.extend(
                envoys
                    .iter()
                    .map(|envoy| Flow::new(envoy.address(), name, rate)),
            );
        }
        flows.push(Flow::new(envoys[0].address(), self.alone, 100.0));
        flows
    }
}
