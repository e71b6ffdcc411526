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
fn a_chart_has_bands_letters_and_a_legend() {
    let html = chart().figure("shares").into_string();
    for part in [
        "<svg role=\"img\" aria-label=\"shares\">",
        "<path class=\"band b0\" d=\"M0.0 90.00L500.0 80.00L1000.0 60.00L1000.0 100.00L500.0 100.00L0.0 100.00Z\">\
         <title>&lt;a&gt;</title>",
        "<path class=\"band others\"",
        "<path class=\"line limit\" d=\"M500.0 0.00L1000.0 0.00\">",
        "y=\"80.0%\">A</text>",
        "y=\"10.0%\">+</text>",
        "text-anchor=\"start\">10s ago</text>",
        "<b>B</b><span><bdi>b</bdi></span><span class=\"num\">40</span>",
        "<b></b><span>limit</span><span class=\"num\">100</span>",
    ] {
        assert!(html.contains(part), "no {part} in\n{html}");
    }
}

#[test]
fn a_chart_needs_two_samples() {
    let mut chart = chart();
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
        html.contains("<path class=\"line limit\" d=\"\">"),
        "{html}"
    );
    assert!(html.contains(">1M</span>"), "{html}");
}
