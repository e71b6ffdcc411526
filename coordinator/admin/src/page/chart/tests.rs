use super::*;

fn chart() -> Chart {
    let band = |name: Option<&str>, shares: [f64; 3]| Band {
        name: name.map(str::to_owned),
        href: None,
        shares: shares.to_vec(),
    };
    Chart {
        unit: "requests".to_owned(),
        window_ms: 10_000,
        ages_ms: vec![10_000, 5_000, 0],
        bands: vec![
            band(Some("<a>"), [10.0, 20.0, 40.0]),
            band(Some("b"), [30.0, 20.0, 40.0]),
            band(None, [0.0, 0.0, 20.0]),
        ],
        limits: vec![None, Some(100.0), Some(100.0)],
        beside: None,
    }
}

#[test]
fn bands_lie_on_each_other_below_the_limit() {
    let html = chart().figure("shares").into_string();
    for part in [
        "<path class=\"b0\" d=\"M0.0 90.00L500.0 80.00L1000.0 60.00L1000.0 100.00L500.0 100.00L0.0 100.00Z\">",
        "<path class=\"b1\" d=\"M0.0 60.00L500.0 60.00L1000.0 20.00L1000.0 60.00L500.0 80.00L0.0 90.00Z\">",
        "<path class=\"limit\" d=\"M500.0 0.00L1000.0 0.00\"></path>",
        "<text x=\"50%\" y=\"80.0%\">A</text><text x=\"50%\" y=\"40.0%\">B</text>\
         <text x=\"50%\" y=\"10.0%\">+</text>",
        "<b>B</b><span><bdi>b</bdi></span><span class=\"num\">40</span>",
        "<b></b><span>limit</span><span class=\"num\">100</span>",
        "<title>&lt;a&gt;</title>",
    ] {
        assert!(html.contains(part), "no {part} in\n{html}");
    }
}

#[test]
fn a_time_without_samples_stays_empty() {
    let mut chart = chart();
    chart.window_ms = 100_000;
    chart.ages_ms = vec![90_000, 88_000, 10_000, 8_000];
    assert_eq!(chart.runs(), [0..2, 2..4]);
    chart.ages_ms = vec![1000];
    let html = chart.figure("shares").into_string();
    assert!(html.contains("after some seconds"), "{html}");
}

#[test]
fn a_limit_that_is_far_away_is_only_named() {
    let mut chart = chart();
    chart.limits = vec![Some(1e6); 3];
    let html = chart.figure("shares").into_string();
    assert!(
        html.contains("<path class=\"limit\" d=\"\"></path>"),
        "{html}"
    );
    assert!(html.contains("1M"), "{html}");
}
