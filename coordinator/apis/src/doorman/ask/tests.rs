use tollgate_core::lease::Unit;
use tollgate_core::units::Capacity;

use super::*;

const NOW: Duration = Duration::from_secs(1000);

fn scopes() -> DoormanScopes {
    let shared = ResourceId::new("tenant/acme", Unit::Requests).unwrap();
    [("shared".to_owned(), shared)].into()
}

fn lease(expiry_time: i64, capacity: f64) -> wire::Lease {
    wire::Lease {
        expiry_time,
        refresh_interval: 1,
        capacity,
    }
}

fn resource(id: &str, priority: i64, wants: f64) -> wire::ResourceRequest {
    wire::ResourceRequest {
        resource_id: id.to_owned(),
        priority,
        has: None,
        wants,
    }
}

fn band(priority: i64, num_clients: i64, wants: f64) -> wire::PriorityBandAggregate {
    wire::PriorityBandAggregate {
        priority,
        num_clients,
        wants,
    }
}

/// Reads a server's request for one resource with these `bands`.
fn server(bands: Vec<wire::PriorityBandAggregate>) -> Result<ResourceAsk, FieldError> {
    let resource = wire::ServerCapacityResourceRequest {
        resource_id: "r".to_owned(),
        has: None,
        wants: bands,
    };
    of_server(&[resource], &scopes(), NOW).map(|mut asked| asked.remove(0))
}

#[test]
fn an_id_is_a_scope_of_its_own_unless_configured() {
    let rows = [
        ("r", "doorman/r"),
        ("", "doorman/"),
        ("a/b", "doorman/a/b"),
        ("shared", "tenant/acme"),
    ];
    for (id, want) in rows {
        let requested = of_client(&[resource(id, 0, 1.0)], &scopes(), NOW).unwrap();
        assert_eq!(&*requested[0].ask.resource.scope, want);
        assert_eq!(requested[0].id, id);
    }
}

#[test]
fn a_lease_is_said_with_the_time_it_lasts() {
    let rows = [
        (lease(1007, 30.5), 30_500_000, 7),
        (lease(1000, 30.0), 30_000_000, 0),
        (lease(-5, 30.0), 30_000_000, 0),
    ];
    for (has, micros, remaining) in rows {
        let request = wire::ResourceRequest {
            has: Some(has),
            ..resource("r", 0, 1.0)
        };
        let requested = of_client(&[request], &scopes(), NOW).unwrap().remove(0);
        let want = RepeatedLease {
            capacity: Capacity::from_micros(micros),
            remaining: Duration::from_secs(remaining),
        };
        assert_eq!(requested.ask.repeated, Some(want), "{has:?}");
    }
}

#[test]
fn bands_of_one_priority_here_are_one() {
    let requested = server(vec![
        band(99, 2, 10.0),
        band(15, 3, 5.0),
        band(-7, 1, 1.0),
        band(0, 1, 1.0),
    ]);
    let bands = [(15, 15, 5), (0, 2, 2)];
    let want = bands.map(|(level, wants, clients)| Band {
        priority: Priority::new(level).unwrap(),
        wants: Capacity::from_whole(wants),
        subclients: NonZeroU32::new(clients).unwrap(),
    });
    assert_eq!(requested.unwrap().ask.demand.bands(), want);
}

#[test]
fn what_is_wrong_names_field_value_and_rule() {
    let long = "x".repeat(300);
    let read = |resource| {
        let error = of_client(&[resource], &scopes(), NOW).unwrap_err();
        error.to_string()
    };
    let rows = [
        (
            resource("r", 0, f64::NAN),
            "resource[0].wants: NaN is not a finite number",
        ),
        (resource("r", 0, -5.0), "resource[0].wants: -5 is negative"),
        (
            resource(&long, 0, 1.0),
            "resource[0].resource_id: has 300 bytes, more than 248",
        ),
        (
            resource("a\nb", 0, 1.0),
            "resource[0].resource_id: has a control character",
        ),
        (
            wire::ResourceRequest {
                has: Some(lease(2000, -1.0)),
                ..resource("r", 0, 1.0)
            },
            "resource[0].has.capacity: -1 is negative",
        ),
    ];
    for (resource, want) in rows {
        assert_eq!(read(resource), want);
    }
    let rows = [
        (vec![], "resource[0].wants: has no entries"),
        (
            vec![band(0, 1, 1.0), band(0, 0, 1.0)],
            "resource[0].wants[1].num_clients: must be at least 1",
        ),
        (
            vec![band(0, -1, 1.0)],
            "resource[0].wants[0].num_clients: must be at least 1",
        ),
        (
            vec![band(0, 1, f64::INFINITY)],
            "resource[0].wants[0].wants: inf is not a finite number",
        ),
    ];
    for (bands, want) in rows {
        assert_eq!(server(bands).unwrap_err().to_string(), want);
    }
    for (id, want) in [
        ("", "client_id: is empty"),
        (&long, "client_id: has 300 bytes, more than 248"),
    ] {
        assert_eq!(client("client_id", id).unwrap_err().to_string(), want);
    }
}

#[test]
fn a_call_is_bounded() {
    let resources = |count| vec![resource("r", 0, 1.0); count];
    assert!(of_client(&resources(SCOPES_MAX), &scopes(), NOW).is_ok());
    let error = of_client(&resources(SCOPES_MAX + 1), &scopes(), NOW).unwrap_err();
    assert_eq!(
        error.to_string(),
        "resource: has 1001 entries, more than 1000"
    );
}

#[test]
fn empty_names_in_a_release_mean_nothing() {
    let ids = ["", "fair", "", "shared"].map(str::to_owned);
    let released = released(&ids, &scopes()).unwrap();
    let names: Vec<&str> = released.iter().map(|id| &*id.scope).collect();
    assert_eq!(names, ["doorman/fair", "tenant/acme"]);
    let error = super::released(&["a".to_owned(), "b\0".to_owned()], &scopes()).unwrap_err();
    assert_eq!(error.to_string(), "resource_id[1]: has a control character");
}
