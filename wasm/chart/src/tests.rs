use super::*;

fn series(class: &'static str, values: [f64; 3]) -> Series<'static> {
    Series {
        class: class.into(),
        title: "<a>".into(),
        name: class.into(),
        values: values.to_vec(),
    }
}

fn chart() -> Chart<'static> {
    Chart {
        unit: "requests",
        span: [-10.0, 0.0],
        times: vec![-10.0, -5.0, 0.0].into(),
        bands: vec![
            series("b0", [10.0, 20.0, 40.0]),
            series("b1", [30.0, 20.0, 40.0]),
            series("others", [0.0, 0.0, 20.0]),
            series("empty", [0.0; 3]),
        ],
        lines: vec![series("limit", [f64::NAN, 100.0, 100.0])],
        labels: vec![(-10.0, "10s ago".to_owned()), (-5.0, "<5s>".to_owned())],
        events: vec![(-5.0, "a < b"), (-4.9, "c"), (0.0, "d")],
    }
}

#[test]
fn bands_lie_on_each_other_below_the_limit() {
    let svg = chart().draw();
    for part in [
        "<path class=\"band b0\" d=\"M0.0 90.00L500.0 80.00L1000.0 60.00L1000.0 100.00L500.0 100.00L0.0 100.00Z\">",
        "<path class=\"band b1\" d=\"M0.0 60.00L500.0 60.00L1000.0 20.00L1000.0 60.00L500.0 80.00L0.0 90.00Z\">",
        "<path class=\"line limit\" d=\"M500.0 0.00L1000.0 0.00\"><title>&lt;a&gt;</title></path>",
        "<text class=\"name\" x=\"100%\" dx=\"6\" y=\"80.0%\">b0</text>\
         <text class=\"name\" x=\"100%\" dx=\"6\" y=\"40.0%\">b1</text>\
         <text class=\"name\" x=\"100%\" dx=\"6\" y=\"10.0%\">others</text>",
        "<text class=\"amount\" dx=\"-6\" y=\"0.0%\">100</text>",
        "x=\"0.0%\" y=\"100%\" dy=\"16\" text-anchor=\"start\">10s ago</text>",
        "text-anchor=\"middle\">&lt;5s&gt;</text>",
        "<path class=\"event\" d=\"M500.0 0V100\"><title>1: a &lt; b</title></path>",
        "<text class=\"number\" x=\"50.0%\" dy=\"-5\">1</text>\
         <text class=\"number\" x=\"100.0%\" dy=\"-5\">3</text>",
    ] {
        assert!(svg.contains(part), "no {part} in\n{svg}");
    }
    assert!(!svg.contains("empty"), "an empty band is drawn");
}

#[test]
fn a_time_without_samples_stays_empty() {
    assert_eq!(runs(&[-90.0, -88.0, -10.0, -8.0]), [0..2, 2..4]);
    assert!(runs(&[1.0]).into_iter().eq(std::iter::once(0..1)));
    assert!(runs(&[]).into_iter().eq(std::iter::once(0..0)));
}

#[test]
fn a_chart_without_samples_and_one_of_no_numbers_are_drawn() {
    let empty = Chart::default().draw();
    let mut none = chart();
    none.bands = vec![series("b0", [f64::NAN; 3])];
    none.lines = vec![series("wants", [f64::INFINITY; 3])];
    none.span = [0.0, 0.0];
    for svg in [empty, none.draw()] {
        assert!(svg.contains("class=\"amount\""), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
