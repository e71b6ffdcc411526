//! Charts of numbers over time, as SVG.

use std::fmt::Write as _;

use tollgate_sim::sample::Mark;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 26.0;
/// The most points of a line: more than there are pixels.
const POINTS_MAX: usize = 2000;
/// The most remarks that are drawn; all are in the list.
const MARKS_MAX: usize = 200;
/// Distance of two numbers of remarks that can be told apart.
const NUMBERS_APART: f64 = 16.0;

/// One line of a chart.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    /// Its class in the page's style, or a colour.
    pub(super) look: Look,
    /// Values at the chart's times; those that are no numbers are left out.
    pub(super) values: Vec<f64>,
}

/// Look of a line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// A class of the page's style.
    Class(&'static str),
    /// Hue of one of many lines, in degrees.
    Hue(usize),
}

/// Chart of several lines.
#[derive(Debug)]
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    pub(super) height: f64,
    /// Seconds of all values.
    pub(super) times: &'a [f64],
    /// Seconds of the whole axis.
    pub(super) duration: f64,
    pub(super) lines: Vec<Line<'a>>,
    pub(super) marks: &'a [Mark],
}

// === impl Chart ===

impl Chart<'_> {
    /// Returns the chart with its title and legend.
    pub(super) fn render(&self) -> String {
        let top = self.lines.iter().flat_map(|line| &line.values);
        let top = top.fold(0.0_f64, |top, value| top.max(*value));
        let (step, top) = scale(top);
        let mut svg = format!(
            "<figure><figcaption>{}</figcaption>{}<div class=\"wide\"><svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" \
             aria-label=\"{}\">",
            escaped(self.title),
            self.legend(),
            self.height,
            escaped(self.title)
        );
        self.draw_axes(&mut svg, step, top);
        self.draw_marks(&mut svg);
        for line in &self.lines {
            self.draw_line(&mut svg, line, top);
        }
        svg + "</svg></div></figure>\n"
    }

    fn legend(&self) -> String {
        let named = self.lines.iter().filter_map(|line| match line.look {
            Look::Class(class) => Some((class, line.name)),
            Look::Hue(_) => None,
        });
        let entries = named.map(|(class, name)| {
            format!("<span><i class=\"{class}\"></i>{}</span>", escaped(name))
        });
        let entries: String = entries.collect();
        match entries.is_empty() {
            true => String::new(),
            false => format!("<p class=\"legend\">{entries}</p>"),
        }
    }

    fn draw_axes(&self, svg: &mut String, step: f64, top: f64) {
        let mut value = 0.0;
        while value <= top * 1.000_001 {
            let y = self.y(value, top);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                short(value)
            );
            value += step;
        }
        let (step, _) = time_scale(self.duration);
        let mut at = 0.0;
        while at <= self.duration * 1.000_001 {
            let _ = write!(
                svg,
                "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                self.x(at),
                self.height - 8.0,
                time(at)
            );
            at += step;
        }
    }

    fn draw_marks(&self, svg: &mut String) {
        let mut numbered = 0.0;
        for (number, mark) in self.marks.iter().take(MARKS_MAX).enumerate() {
            let x = self.x(mark.at);
            let _ = write!(
                svg,
                "<g class=\"mark\"><title>{}: {}</title><line x1=\"{x:.1}\" x2=\"{x:.1}\" \
                 y1=\"{TOP}\" y2=\"{:.1}\"/>",
                number + 1,
                escaped(&mark.text),
                self.height - BOTTOM,
            );
            if x >= numbered + NUMBERS_APART {
                numbered = x;
                let _ = write!(
                    svg,
                    "<text text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                    TOP - 5.0,
                    number + 1
                );
            }
            svg.push_str("</g>");
        }
    }

    fn draw_line(&self, svg: &mut String, line: &Line<'_>, top: f64) {
        let every = line.values.len().div_ceil(POINTS_MAX).max(1);
        let points = self.times.iter().zip(&line.values).step_by(every);
        let points = points.filter(|(_, value)| value.is_finite());
        let points = points.map(|(at, value)| {
            let (x, y) = (self.x(*at), self.y(*value, top));
            format!("{x:.1},{y:.1}")
        });
        let points = points.collect::<Vec<_>>().join(" ");
        let _ = match line.look {
            Look::Class(class) => {
                write!(svg, "<polyline class=\"{class}\" points=\"{points}\"/>")
            }
            Look::Hue(hue) => write!(
                svg,
                "<polyline class=\"one\" style=\"stroke:hsl({hue} 60% var(--bright))\" \
                 points=\"{points}\"><title>{}</title></polyline>",
                escaped(line.name)
            ),
        };
    }

    fn x(&self, at: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * at / self.duration.max(f64::MIN_POSITIVE)
    }

    fn y(&self, value: f64, top: f64) -> f64 {
        let bottom = self.height - BOTTOM;
        bottom - (bottom - TOP) * value / top
    }
}

// === free functions ===

/// Returns `text` for HTML.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Returns seconds as a person writes them.
pub(super) fn time(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        _ if seconds < 10.0 && seconds.fract() > 0.0 => format!("{seconds:.1} s"),
        0..120 => format!("{whole} s"),
        120..7200 if whole.is_multiple_of(60) => format!("{} min", whole / 60),
        120..7200 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// Returns the distance of lines on an axis that reaches `top` at least, and its end.
fn scale(top: f64) -> (f64, f64) {
    let rough = (top / 5.0).max(1e-6);
    let power = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(power * 10.0);
    (step, (top / step).ceil().max(1.0) * step)
}

/// Returns the distance of times on an axis of so many seconds.
fn time_scale(duration: f64) -> (f64, f64) {
    let steps = [
        1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0,
    ];
    let step = steps.into_iter().find(|step| duration / step <= 12.0);
    match step {
        Some(step) => (step, duration),
        None => scale(duration),
    }
}

fn short(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        _ if value >= 1e4 => format!("{}k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        let rows = [
            (0.0, 1e-6),
            (7.0, 8.0),
            (550.0, 600.0),
            (1000.0, 1000.0),
            (61_000.0, 80_000.0),
        ];
        for (top, want) in rows {
            let (step, end) = scale(top);
            assert!((end - want).abs() < 1e-6 * want.max(1.0), "{top}: {end}");
            assert!((1.0..=10.0).contains(&(end / step)), "{top}: {step}");
        }
        assert_eq!(short(12_500.0), "12.5k");
        assert_eq!(short(0.25), "0.25");
        assert_eq!(time(90.0), "90 s");
        assert_eq!(time(150.0), "2:30 min");
    }

    #[test]
    fn names_from_requests_cannot_break_the_page() {
        let line = Line {
            name: "a<script>",
            look: Look::Class("has"),
            values: vec![1.0, 2.0],
        };
        let chart = Chart {
            title: "\"x\" & y",
            height: 200.0,
            times: &[0.0, 1.0],
            duration: 2.0,
            lines: vec![line],
            marks: &[],
        };
        let svg = chart.render();
        assert!(
            !svg.contains("<script>") && svg.contains("a&lt;script&gt;"),
            "{svg}"
        );
        assert!(svg.contains("&quot;x&quot; &amp; y"), "{svg}");
    }
}
