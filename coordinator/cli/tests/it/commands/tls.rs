//! Commands over TLS.

use super::{CONFIG, Server, say};
use crate::certificates::{Folder, Issuer};

#[test]
fn commands_speak_tls_with_whom_they_trust_and_say_who_they_are() {
    let (folder, issuer, other_issuer) = (Folder::new(), Issuer::new(), Issuer::new());
    let ca = folder.write("ca.pem", &issuer.pem());
    let other_ca = folder.write("other.pem", &other_issuer.pem());
    let door = folder.door(&issuer.issue());
    let tls = format!("tls: {{http: {{{door}, client_ca: '{ca}'}}}}");
    let server = Server::with(&format!("{CONFIG}\n{tls}"));
    let port = server.serve.address("http").port();
    let url = format!("https://localhost:{port}");
    let identity = |name: &str, issuer: &Issuer| {
        let pair = issuer.issue();
        let cert = folder.write(&format!("{name}.crt"), &pair.cert);
        (cert, folder.write(&format!("{name}.key"), &pair.key))
    };
    let status = |ca: &str, (cert, key): &(String, String)| {
        let args = [
            "status", "--server", &url, "--ca", ca, "--cert", cert, "--key", key,
        ];
        say(&args, "")
    };
    let me = identity("me", &issuer);
    let message = status(&ca, &me).done();
    assert!(message.starts_with(&url), "{message}");

    let away = format!("no answer from {url}");
    status(&other_ca, &me).failed(1, "invalid peer certificate: ");
    status(&ca, &identity("not-me", &other_issuer)).failed(1, &away);
    say(&["status", "--server", &url, "--ca", &ca], "").failed(1, &away);
    let by_address = format!("https://127.0.0.1:{port}");
    let args = ["status", "--server", &by_address, "--ca", &ca];
    say(&args, "").failed(1, "not valid for name");
    server
        .say("status")
        .failed(1, &format!("no answer from {}", server.url));
    let swapped = (me.1, me.0);
    status(&ca, &swapped).failed(2, "has no certificate");
}
