//! An etcd that wants TLS, a client's certificate and a user.

use super::*;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// Writes a CA, and a certificate with key for 127.0.0.1 that it has issued.
fn write_certificates(dir: &Path) -> Result<()> {
    let mut ca = CertificateParams::new([])?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let cert = CertificateParams::new(names)?.signed_by(&key, &ca)?;
    std::fs::write(dir.join("ca.pem"), ca.pem())?;
    std::fs::write(dir.join("cert.pem"), cert.pem())?;
    std::fs::write(dir.join("key.pem"), key.serialize_pem())?;
    Ok(())
}

/// Turns on etcd's authentication, with one user for the keys below `/edge/`: `edge`, with
/// `password`.
async fn ask_for_users(mut client: Client, password: &str) -> Result<()> {
    use etcd_client::{Permission, PermissionType};
    client.user_add("root", "root", None).await?;
    client.role_add("root").await?;
    client.user_grant_role("root", "root").await?;
    client.user_add("edge", password, None).await?;
    client.role_add("edge").await?;
    let below = Permission::new(PermissionType::Readwrite, "/edge/").with_prefix();
    client.role_grant_permission("edge", below).await?;
    client.user_grant_role("edge", "edge").await?;
    client.auth_enable().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_with_tls_and_users_is_as_good() {
    let dir = tempfile::tempdir().unwrap();
    write_certificates(dir.path()).unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let flags = [
        "--client-cert-auth".to_owned(),
        format!("--trusted-ca-file={}", file("ca.pem")),
        format!("--cert-file={}", file("cert.pem")),
        format!("--key-file={}", file("key.pem")),
    ];
    let etcd = Etcd::start_with(dir.path(), 1, "https", &flags)
        .await
        .unwrap();
    std::fs::write(dir.path().join("good"), "open sesame\n").unwrap();
    std::fs::write(dir.path().join("bad"), "open barley\n").unwrap();
    let config = |login: &str, prefix: &str| {
        let tls = format!(
            "tls: {{ca: '{}', cert: '{}', key: '{}'}}",
            file("ca.pem"),
            file("cert.pem"),
            file("key.pem"),
        );
        let endpoints = etcd.endpoints_yaml();
        let etcd = format!("endpoints: {endpoints}, prefix: {prefix}, lease: 2s, {tls}{login}");
        with_etcd("a", "shards: 2", &etcd)
    };
    let login = |password: &str| format!(", user: edge, password_file: '{}'", file(password));
    let root = client(&config("", "/edge")).await;
    ask_for_users(root, "open sesame").await.unwrap();

    let refused = connect_and_read(&config(&login("bad"), "/edge")).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("authentication failed"), "{error}");
    let refused = connect_and_read(&config(&login("good"), "/other")).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("permission denied"), "{error}");

    let config = config(&login("good"), "/edge");
    let elector = Elector::start(&config, Some(snapshot(10)));
    elector.leads(2).await;
    elector.stop().await;
    let second = Elector::start(&config, None);
    second.leads(2).await;
    assert_eq!(second.terms.of(SHARD).unwrap().1, Some(snapshot(10)));
}

async fn connect_and_read(config: &ClusterConfig) -> Result<()> {
    let mut client = connect(&config.etcd, &FileReader::default(), &config.etcd.endpoints).await?;
    client
        .get(format!("{}/cluster", config.etcd.prefix), None)
        .await?;
    Ok(())
}
