//! The claims of the examples, checked in the output of their own commands.

use anyhow::{Context, Result, ensure};
use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::walk::Walk;

/// Checks the behaviour that an example is about.
pub(crate) type Claim = fn(&Walk) -> Result<()>;

/// Every example with its claim.
pub(crate) const CLAIMS: [(&str, Claim); 11] = [
    ("ai-tokens", tokens_of_answers_are_charged),
    ("bytes", bodies_are_charged),
    ("concurrency", no_more_are_in_flight),
    ("dynamic-module", the_module_limits),
    ("grpc", calls_are_refused_in_grpcs_form),
    ("groups", members_share),
    ("jwt", the_verified_claim_is_limited),
    ("matcher", what_the_matcher_skips_is_free),
    ("quotas", plans_have_amounts_of_a_day),
    ("ratelimit", the_service_refuses),
    ("tls", leases_come_over_tls),
];

/// The number of words `code` in `output`.
pub(crate) fn count(output: &str, code: &str) -> usize {
    output
        .split_whitespace()
        .filter(|word| *word == code)
        .count()
}

/// The value of a header field in the output of `curl -D -`.
pub(crate) fn field<'a>(output: &'a str, name: &str) -> Result<&'a str> {
    let fields = output.lines().filter_map(|line| line.split_once(": "));
    let mut named = fields.filter(|(field, _)| *field == name);
    let (_, value) = named
        .next()
        .with_context(|| format!("no {name} in\n{output}"))?;
    Ok(value.trim())
}

/// Checks that the command with `part` was refused for `reason`, for a known time; returns the time in ms.
fn refused(walk: &Walk, part: &str, reason: &str) -> Result<u64> {
    let output = walk.output(part)?;
    ensure!(output.contains("HTTP/1.1 429"), "{output}");
    ensure!(field(output, "tollgate-reason")? == reason, "{output}");
    Ok(field(output, "tollgate-pause-ms")?.parse()?)
}

fn tokens_of_answers_are_charged(walk: &Walk) -> Result<()> {
    let answers = walk.output("?[1-6]")?;
    // Three answers of 400 tokens are more than a thousand.
    let admitted = count(answers, "200");
    ensure!((1..=3).contains(&admitted), "{answers}");
    let pause = refused(walk, "-D -", "tenant/requests")?;
    // The debt is paid at 20 a second; without one the next token would take 50 ms.
    ensure!(pause > 1000, "{pause} ms");
    Ok(())
}

fn bodies_are_charged(walk: &Walk) -> Result<()> {
    // A body owes nine seconds more than what the bucket holds.
    for (part, reason) in [
        ("x-tenant: acme' 127", "tenant/request_bytes"),
        ("x-tenant: bolt' 127", "tenant/response_bytes"),
    ] {
        let pause = refused(walk, part, reason)?;
        ensure!(pause > 500, "{reason}: {pause} ms");
    }
    Ok(())
}

fn plans_have_amounts_of_a_day(walk: &Walk) -> Result<()> {
    let trial = walk.output("?[1-8]")?;
    ensure!(count(trial, "200") == 5, "{trial}");
    let refusal = walk.output("-D -")?;
    let reason = field(refusal, "tollgate-reason")?;
    ensure!(reason == "plan/requests/quota", "{refusal}");
    let policy = field(refusal, "ratelimit-policy")?;
    ensure!(policy == r#""plan/quota";q=5;w=86400"#, "{refusal}");
    let free = walk.output("?[1-12]")?;
    ensure!(count(free, "200") == 10, "{free}");
    let view = walk.output("get scope")?;
    ensure!(view.contains("used 10 of 1000 per day"), "{view}");
    Ok(())
}

fn no_more_are_in_flight(walk: &Walk) -> Result<()> {
    let codes = walk.output("xargs")?;
    let admitted = count(codes, "200");
    ensure!((1..=2).contains(&admitted), "{codes}");
    ensure!(count(codes, "429") == 6 - admitted, "{codes}");
    Ok(())
}

fn the_module_limits(walk: &Walk) -> Result<()> {
    let output = walk.output("seq 20")?;
    let admitted = count(output, "200");
    // The burst, and what a busy machine takes to send twenty requests.
    ensure!((5..=15).contains(&admitted), "{output}");
    ensure!(count(output, "429") == 20 - admitted, "{output}");
    Ok(())
}

fn calls_are_refused_in_grpcs_form(walk: &Walk) -> Result<()> {
    let codes = walk.output("seq 8")?;
    ensure!(codes.contains("grpc-status: 0"), "{codes}");
    ensure!(codes.contains("grpc-status: 8"), "{codes}");
    let answer = walk.output("tail")?;
    let mut headers = HeaderMap::new();
    for (name, value) in answer.lines().filter_map(|line| line.split_once(": ")) {
        let name = HeaderName::from_bytes(name.as_bytes())?;
        headers.insert(name, HeaderValue::from_str(value.trim())?);
    }
    let status = Status::from_header_map(&headers).context("a gRPC status")?;
    ensure!(status.code() == Code::ResourceExhausted, "{status}");
    let info = status.get_details_error_info().context("ErrorInfo")?;
    ensure!(info.metadata["reason"] == "tenant/requests", "{info:?}");
    let retry = status.get_details_retry_info().context("RetryInfo")?;
    ensure!(retry.retry_delay.is_some_and(|delay| !delay.is_zero()));
    Ok(())
}

fn members_share(walk: &Walk) -> Result<()> {
    let table = walk.output("uniq -c")?;
    let count = |tenant: &str, code: &str| {
        let row = table
            .lines()
            .find(|line| line.trim_end().ends_with(&format!("{tenant} {code}")));
        let number = row.and_then(|row| row.split_whitespace().next());
        number.map_or(Ok(0), str::parse::<u32>)
    };
    let (acme, bolt) = (count("acme", "200")?, count("bolt", "200")?);
    let (refused, bolts) = (count("acme", "429")?, bolt + count("bolt", "429")?);
    ensure!(refused > 0, "{table}");
    // Twenty a second in little more than eight seconds, and what an Envoy admits before its first lease.
    ensure!(acme + bolt <= 220, "more than the group has:\n{table}");
    // acme asks three times as often. From one bucket for both bolt would get a third of acme's; with equal parts it
    // gets as much, or all that it asks for.
    ensure!(2 * bolt >= acme || 10 * bolt >= 9 * bolts, "{table}");
    let batch = walk.output("x-namespace")?;
    ensure!(self::count(batch, "200") <= 5, "{batch}");
    Ok(())
}

fn the_verified_claim_is_limited(walk: &Walk) -> Result<()> {
    // The tenant bolt has its own limit, although acme's is used up, and a forged token has none.
    let bolt = walk.output("$BOLT")?;
    ensure!(bolt.starts_with("200"), "{bolt}");
    for part in ["}x", "%{http_code}\\n' 127"] {
        ensure!(walk.output(part)?.trim() == "401", "{part}");
    }
    Ok(())
}

fn what_the_matcher_skips_is_free(walk: &Walk) -> Result<()> {
    let pages = walk.output("format=html")?;
    ensure!(count(pages, "200") == 8, "{pages}");
    let files = walk.output("format=pdf")?;
    // The burst, and what a busy machine takes to send eight requests.
    let admitted = count(files, "200");
    ensure!((3..=5).contains(&admitted), "{files}");
    ensure!(count(files, "429") == 8 - admitted, "{files}");
    // A spelling that upstreams read as the same is no way around the limit.
    let encoded = walk.output("f%6Frmat=p%64f")?;
    ensure!(count(encoded, "429") > 0, "{encoded}");
    Ok(())
}

fn the_service_refuses(walk: &Walk) -> Result<()> {
    let codes = walk.output("?[1-8]")?;
    // One more may come in meanwhile.
    let admitted = count(codes, "200");
    ensure!((5..=6).contains(&admitted), "{codes}");
    ensure!(walk.output("echo bolt")?.starts_with("200"));
    Ok(())
}

fn leases_come_over_tls(walk: &Walk) -> Result<()> {
    let handshakes = walk.output("ssl.handshake")?;
    let (_, number) = handshakes.split_once(": ").context("a statistic")?;
    ensure!(number.trim().parse::<u64>()? > 0, "{handshakes}");
    // Not the safe capacity, which has no need of a coordinator.
    let problem = walk.output("grep -o 'quota")?;
    ensure!(problem.contains("quota-exceeded"), "{problem}");
    Ok(())
}
