//! Scopes that use the capacity of another: tenants of a group divided between Envoys only, and namespaces
//! of an attached tenant. Together they get the capacity of the one scope, through any number of Envoys.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tollgate_tests::conclude;
use tollgate_tests::envoy::Envoy;
use tollgate_tests::filter::{COORDINATOR, TENANT_HEADER};
use tollgate_tests::load::{Flow, Load, sum};

use crate::test_context::{
    TestContext, assert_near, assert_never_above, print_course, run_test, s, watch_leases,
};

const CAPACITY: f64 = 400.0;
const BURST: f64 = 40.0;
/// Load of each of the two sharing scopes on each Envoy.
const RATES: [f64; 2] = [300.0, 60.0];

/// Keys that share one bucket, and the scope of that bucket.
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
    run_test(
        "tenants_of_a_group_share_one_bucket_across_envoys",
        async |test| {
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
            case.check(test).await
        },
    );
}

#[test]
fn namespaces_share_the_bucket_of_an_attached_tenant() {
    run_test(
        "namespaces_share_the_bucket_of_an_attached_tenant",
        async |test| {
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
            case.check(test).await
        },
    );
}

// === impl Case ===

impl Case {
    async fn check(&self, test: &TestContext) -> Result<()> {
        let coordinator = test.coordinator(self.config).await?;
        let rule = json!({"name": self.rule, "key": {"header": TENANT_HEADER}});
        let plugin = json!({"coordinator": COORDINATOR, "scopes": [rule]});
        let names = ["envoy-0", "envoy-1"];
        let envoys = test.envoys(names, &coordinator, &plugin).await?;
        let load = Load::start(self.flows(&envoys));
        watch_leases(&coordinator, self.canonical, &load, s(9.0)).await?;
        let leases = coordinator.leases(self.canonical).await?;
        let leases =
            leases.with_context(|| format!("{} is unknown to the coordinator", self.canonical))?;
        ensure!(leases.sum_has() <= CAPACITY + 1e-6, "{leases:?}");
        let records = load.stop().await?;
        let together = sum(&records[..4]);
        print_course(self.canonical, &together);
        let measured = together.admitted_per_second(s(3.0)..s(9.0));
        assert_near("all that share", measured, CAPACITY, 0.02);
        assert_never_above(&together, CAPACITY, BURST);
        // One bucket for both: a scope gets at most its part of the requests, and less if the other's
        // arrive first. With a share of its own it would get its whole load.
        let small = sum(&records[2..4]).admitted_per_second(s(3.0)..s(9.0));
        let part = CAPACITY * RATES[1] / (RATES[0] + RATES[1]);
        conclude!(small <= part * 1.2, "{small}/s instead of at most {part}/s");
        ensure!(together.total().failed == 0, "{:?}", together.total());
        // A tenant outside the group does not share its limit.
        let total = records[4].total();
        conclude!((total.refused, total.failed) == (0, 0), "{total:?}");
        Ok(())
    }

    /// Flows of both names to both Envoys, over the capacity, and one of a tenant without a limit.
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
