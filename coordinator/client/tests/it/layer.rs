//! Limited tower services.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tollgate_client::{
    Charge, Client, LimitedService, ResponseBody, Rule, Settings, TollgateLayer,
};
use tonic::Status;
use tonic_types::StatusExt as _;
use tower::{Layer as _, Service, ServiceExt as _};

use crate::lender::Lender;

type Words = Full<Bytes>;

fn charge(request: &Request<Words>) -> Option<Charge> {
    let tenant = request.headers().get("x-tenant")?.to_str().ok()?;
    Some(Charge::of(format!("tenant/{tenant}")))
}

fn service(
    lender: Lender,
) -> impl Service<Request<Words>, Response = Response<ResponseBody<Words>>, Error = Infallible> + Clone
{
    let settings = Settings::new("http://unused").rule(Rule::new("tenant"));
    let client = Client::start_with(&settings, lender).unwrap();
    let inner =
        tower::service_fn(|_: Request<Words>| async { Ok(Response::new(Words::from("served"))) });
    let service: LimitedService<_, _> = TollgateLayer::new(client, charge).layer(inner);
    service
}

fn request(tenant: &str, kind: &str) -> Request<Words> {
    let request = Request::builder().header("x-tenant", tenant);
    let request = request.header("content-type", kind);
    request.body(Words::default()).unwrap()
}

async fn text(response: Response<ResponseBody<Words>>) -> String {
    let body = response.into_body().collect().await.unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_in_http() {
    let mut service = service(Lender::new(1, None));
    let mut ask = async |tenant: &str| {
        let ready = service.ready().await.unwrap();
        ready.call(request(tenant, "text/plain")).await.unwrap()
    };
    assert_eq!(text(ask("acme").await).await, "served");
    let refused = ask("acme").await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let header = |name: &str| refused.headers()[name].to_str().unwrap();
    assert_eq!(header("tollgate-reason"), "tenant/requests");
    assert_eq!(header("retry-after"), "1");
    assert_eq!(header("content-type"), "application/problem+json");
    assert_eq!(header("ratelimit"), "\"tenant\";r=0;t=1");
    let body = text(refused).await;
    assert!(body.contains("quota-exceeded"), "{body}");
    let wrong = ask(&"x".repeat(300)).await;
    assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
    assert!(text(wrong).await.contains("200 bytes"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_in_grpc() {
    let mut service = service(Lender::new(1, None));
    let mut ask = async || {
        let ready = service.ready().await.unwrap();
        ready
            .call(request("acme", "application/grpc"))
            .await
            .unwrap()
    };
    ask().await;
    let refused = ask().await;
    assert_eq!(refused.status(), StatusCode::OK);
    let status = Status::from_header_map(refused.headers()).unwrap();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    let details = status.get_error_details();
    assert_eq!(details.error_info().unwrap().reason, "RATE_LIMITED");
    assert!(details.retry_info().unwrap().retry_delay.is_some());
    assert_eq!(refused.headers()["tollgate-reason"], "tenant/requests");
    assert_eq!(text(refused).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_in_flight_until_its_response_has_been_sent() {
    let lender = Lender::new(1000, Some(1));
    let service = service(lender.clone());
    let ask = async || {
        service
            .clone()
            .oneshot(request("acme", "text/plain"))
            .await
            .unwrap()
    };
    text(ask().await).await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let first = ask().await;
    let second = ask().await;
    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(text(first).await, "served");
    assert_eq!(ask().await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_charge_passes() {
    let lender = Lender::new(0, None);
    let response = service(lender.clone())
        .oneshot(Request::new(Words::default()))
        .await;
    assert_eq!(text(response.unwrap()).await, "served");
    assert_eq!(lender.refreshes(), 0);
}
