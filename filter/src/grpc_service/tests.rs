use prost::Message;
use prost::encoding::decode_varint;

use super::*;

/// `GrpcService`, as far as it is used, with Envoy's numbers of the fields.
#[derive(Clone, PartialEq, Message)]
struct GrpcService {
    #[prost(message, optional, tag = "1")]
    envoy_grpc: Option<EnvoyGrpc>,
    #[prost(message, optional, tag = "2")]
    google_grpc: Option<GoogleGrpc>,
}

#[derive(Clone, PartialEq, Message)]
struct EnvoyGrpc {
    #[prost(string, tag = "1")]
    cluster_name: String,
    #[prost(string, tag = "2")]
    authority: String,
}

#[derive(Clone, PartialEq, Message)]
struct GoogleGrpc {
    #[prost(string, tag = "1")]
    target_uri: String,
    #[prost(message, optional, tag = "2")]
    channel_credentials: Option<ChannelCredentials>,
    #[prost(string, tag = "4")]
    stat_prefix: String,
    #[prost(message, optional, tag = "8")]
    channel_args: Option<ChannelArgs>,
}

#[derive(Clone, PartialEq, Message)]
struct ChannelCredentials {
    #[prost(message, optional, tag = "1")]
    ssl_credentials: Option<SslCredentials>,
}

#[derive(Clone, PartialEq, Message)]
struct SslCredentials {
    #[prost(message, optional, tag = "1")]
    root_certs: Option<DataSource>,
    #[prost(message, optional, tag = "2")]
    private_key: Option<DataSource>,
    #[prost(message, optional, tag = "3")]
    cert_chain: Option<DataSource>,
}

#[derive(Clone, PartialEq, Message)]
struct DataSource {
    #[prost(string, tag = "1")]
    filename: String,
    #[prost(string, tag = "3")]
    inline_string: String,
}

#[derive(Clone, PartialEq, Message)]
struct ChannelArgs {
    #[prost(btree_map = "string, message", tag = "1")]
    args: std::collections::BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Value {
    #[prost(string, optional, tag = "1")]
    string_value: Option<String>,
    #[prost(int64, optional, tag = "2")]
    int_value: Option<i64>,
}

fn google_grpc(address: &Address, at: Duration) -> GoogleGrpc {
    let service = address.service(Instant::ZERO.saturating_add(at));
    let service = GrpcService::decode(service.as_bytes()).unwrap();
    assert_eq!(service.envoy_grpc, None);
    service.google_grpc.unwrap()
}

fn settings(google_grpc: &GoogleGrpc) -> Vec<(&str, Option<&str>, Option<i64>)> {
    let args = google_grpc.channel_args.as_ref().unwrap().args.iter();
    let args = args.map(|(name, value)| {
        let text = value.string_value.as_deref();
        (name.as_str(), text, value.int_value)
    });
    args.collect()
}

fn with_tls(tls: Tls) -> Address {
    Address {
        target: "tollgate.infra:7710".to_owned(),
        tls: Some(tls),
    }
}

fn mutual_tls(len: usize) -> Tls {
    let path = |name: &str| format!("/{}{name}", "d".repeat(len - 1 - name.len()));
    Tls {
        ca: Some(Pem::File(path("ca"))),
        files: Some(Files {
            cert: path("cert"),
            key: path("key"),
        }),
        server_name: Some("coordinator.example".to_owned()),
        reread_seconds: None,
    }
}

#[test]
fn a_cluster_is_called_as_a_grpc_service_message() {
    // A bare name that begins like a message would be taken for one.
    let service = of_cluster("authority");
    assert_eq!(service.as_bytes(), b"\x0a\x0b\x0a\x09authority");
}

#[test]
fn a_cluster_whose_name_is_no_host_is_called_with_another_authority() {
    let longest = "|".repeat(120);
    for name in [
        "outbound|7710||tollgate.infra",
        "httproute/a/b/rule/0",
        &longest,
    ] {
        let service = GrpcService::decode(of_cluster(name).as_bytes()).unwrap();
        let called = service.envoy_grpc.unwrap();
        assert_eq!(
            (called.cluster_name.as_str(), called.authority.as_str()),
            (name, "any")
        );
    }
}

#[test]
fn an_address_is_called_in_plain_text_with_short_pauses_between_connections() {
    let address = Address {
        target: "tollgate.infra:7710".to_owned(),
        tls: None,
    };
    let called = google_grpc(&address, Duration::ZERO);
    assert_eq!(called.target_uri, "tollgate.infra:7710");
    assert_eq!(called.stat_prefix, "tollgate");
    assert_eq!(called.channel_credentials, None);
    let mut want = CHANNEL_SETTINGS.map(|(name, value)| (name, None, Some(i64::from(value))));
    want.sort_unstable();
    assert_eq!(settings(&called), want);
    // Without TLS there are no files to be read again.
    let later = google_grpc(&address, Duration::from_secs(100_000));
    assert_eq!(called, later);
}

#[test]
fn files_of_tls_arrive_whatever_their_length() {
    let file = |name: &String| {
        Some(DataSource {
            filename: name.clone(),
            inline_string: String::new(),
        })
    };
    for len in 5..=120 {
        let tls = mutual_tls(len);
        let called = google_grpc(&with_tls(tls.clone()), Duration::ZERO);
        let files = tls.files.unwrap();
        let want = SslCredentials {
            root_certs: file(&tls.ca.unwrap().name()),
            private_key: file(&files.key),
            cert_chain: file(&files.cert),
        };
        assert_eq!(
            called.channel_credentials.unwrap().ssl_credentials,
            Some(want)
        );
    }
    let system = Tls {
        ca: None,
        files: None,
        server_name: None,
        reread_seconds: None,
    };
    let called = google_grpc(&with_tls(system), Duration::ZERO);
    let credentials = called.channel_credentials.unwrap().ssl_credentials;
    assert_eq!(credentials, Some(SslCredentials::default()));
}

#[test]
fn certificates_themselves_arrive_whatever_their_length() {
    for len in (1..2000).chain(6700..=7000) {
        let certificates = "c".repeat(len);
        let mut tls = mutual_tls(120);
        tls.ca = Some(Pem::Text(certificates.clone()));
        let called = google_grpc(&with_tls(tls), Duration::ZERO);
        let credentials = called.channel_credentials.unwrap().ssl_credentials.unwrap();
        let found = credentials.root_certs.unwrap();
        assert_eq!(found.inline_string.trim_end_matches('\n'), certificates);
        assert_eq!(found.filename, "");
        assert!(found.inline_string.len() < len + 128);
    }
}

#[test]
fn the_message_changes_when_files_are_to_be_read_again() {
    let mut tls = mutual_tls(30);
    for (seconds, interval) in [(None, 3600), (Some(5), 5)] {
        tls.reread_seconds = seconds;
        let address = with_tls(tls.clone());
        let at = |seconds: u64, nanos| {
            address.service(Instant::ZERO.saturating_add(Duration::new(seconds, nanos)))
        };
        assert_eq!(at(interval, 0), at(2 * interval - 1, 999_999_999));
        assert_ne!(at(interval, 0), at(2 * interval, 0));
    }
    let called = google_grpc(&with_tls(mutual_tls(30)), Duration::from_secs(7200));
    let texts = settings(&called)
        .into_iter()
        .filter_map(|(name, text, _)| Some((name, text?)));
    let want = [
        ("grpc.ssl_target_name_override", "coordinator.example"),
        ("tollgate.reading", "2"),
    ];
    assert_eq!(texts.collect::<Vec<_>>(), want);
}

#[test]
fn a_number_that_is_written_is_read_again() {
    let mut written = 0;
    for value in (0..20_000).chain([u32::MAX]) {
        if let Some(text) = number(value) {
            let mut bytes = text.as_bytes();
            assert_eq!(decode_varint(&mut bytes), Ok(u64::from(value)));
            assert_eq!(bytes, b"");
            written += 1;
        }
    }
    assert!(written > 2000, "{written}");
}

#[test]
fn other_ways_to_connect_have_other_names() {
    let plain = Address {
        target: "[::1]:7710".to_owned(),
        tls: None,
    };
    assert_eq!(plain.name(), "grpc://[::1]:7710");
    let mut tls = mutual_tls(10);
    let want = "grpcs://tollgate.infra:7710?ca=/dddddddca&cert=/dddddcert&key=/ddddddkey\
                &server_name=coordinator.example";
    assert_eq!(with_tls(tls.clone()).name(), want);
    tls.ca = Some(Pem::Text("-----BEGIN".to_owned()));
    let (one, mut other) = (with_tls(tls.clone()).name(), tls.clone());
    other.ca = Some(Pem::Text("-----BEGIN ".to_owned()));
    assert_ne!(one, with_tls(other).name());
    assert_eq!(one.len(), want.len() + 16 - "/dddddddca".len());
    tls.ca = mutual_tls(10).ca;
    tls.reread_seconds = Some(60);
    assert_eq!(with_tls(tls).name(), format!("{want}&reread_seconds=60"));
}

#[test]
fn a_name_is_bare_only_if_it_is_no_message() {
    let rows = [
        ("tollgate", true),
        ("coordinator", true),
        ("tollgate-coordinators", true),
        ("tollgate-shard-0", true),
        ("outbound|7710||tollgate.infra.svc.cluster.local", true),
        // Fields of fixed length with just so many bytes.
        ("authority", false),
        ("meshy", false),
        // A length and so many bytes, a number, and a group that ends.
        ("z\u{20}01234567890123456789012345678901", false),
        ("hX", false),
        ("cd", false),
        ("cl", true),
    ];
    for (name, bare) in rows {
        assert_eq!(may_be_message(name.as_bytes()), !bare, "{name}");
    }
}
