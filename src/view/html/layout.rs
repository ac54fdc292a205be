//! The markup of a page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::address::address;
use super::flow::{Drawn, HEIGHT, WIDTH, placed};
use super::math::{equation, prose};
use super::sheet::StepSheet;
use super::texts;
use crate::tour::Stop;
use base::error::shown;
use base::lang::{Language, text};

const STYLE: &str = include_str!(concat!(env!("OUT_DIR"), "/page.css"));
const SCRIPT: &str = include_str!(concat!(env!("OUT_DIR"), "/page.js"));

/// What stands on a page.
pub struct Sheet {
    pub title: String,
    pub facts: Vec<String>,
    /// What a comparison found.
    pub found: Option<Found>,
    /// What the sides of a comparison are called.
    pub sides: Vec<String>,
    pub steps: Vec<StepSheet>,
    /// The stops of a tour of a run.
    pub tour: Vec<Stop>,
}

/// What a comparison found.
pub struct Found {
    /// What the report of the tool says, line by line.
    pub lines: Vec<String>,
    /// Faulty lines of code, and what should stand there.
    pub mistakes: Vec<Mistake>,
    /// Where the sides first part: a step and a cell of it.
    pub first: Option<(String, Vec<usize>)>,
}

/// A mistake that has a name.
pub struct Mistake {
    pub id: &'static str,
    /// Where it is made.
    pub step: String,
    pub summary: String,
    pub silent: &'static str,
    pub wrong: &'static str,
    pub right: &'static str,
}

/// The head of a page, which may load nothing; `scripts` is what its policy says of these, and `style` comes behind that of all
/// pages.
pub fn head(title: &str, scripts: &str, style: &str) -> Markup {
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; {scripts}img-src data:; base-uri 'none'; form-action 'none'"
    );
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(policy);
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            link rel="icon" href="data:,";
            title { (title) }
            style { (PreEscaped(STYLE)) (PreEscaped(style)) }
        }
    }
}

/// The page, with its data.
pub fn page(sheet: &Sheet, notice: Option<&str>, data: &str) -> Markup {
    html! {
        (DOCTYPE)
        html lang=(Language::spoken().tag()) {
            (head(&sheet.title, "script-src 'unsafe-inline'; ", ""))
            body {
                a class="skip" href="#main" { (text(texts::SKIP)) }
                header {
                    h1 { (sheet.title) }
                    ul class="facts" { @for fact in &sheet.facts { li { (fact) } } }
                    @if let Some(notice) = notice { p class="notice" { (notice) } }
                    noscript { p class="notice" { (text(texts::NO_SCRIPT)) } }
                    @if let Some(found) = &sheet.found { (verdict(found)) }
                }
                nav aria-label=(text(texts::STEPS)) { (list(&sheet.steps)) }
                main id="main" tabindex="-1" {
                    (controls(sheet))
                    @for (at, step) in sheet.steps.iter().enumerate() { (about(at, step, &sheet.tour)) }
                    p id="said" role="status" {}
                    div id="view" {}
                    div class="aside" {
                        section id="how" aria-labelledby="how-title" {
                            h3 id="how-title" class="hint" { (text(texts::HINT)) }
                        }
                        div id="parts" {}
                    }
                }
                footer {
                    details {
                        summary { (text(texts::KEYS_TITLE)) }
                        dl class="keys" {
                            @for (key, what) in texts::KEYS { dt { kbd { (key) } } dd { (text(what)) } }
                        }
                    }
                    p { (texts::made_by(env!("CARGO_PKG_VERSION"))) }
                }
                script id="data" type="application/json" { (PreEscaped(data)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

/// What was found: the mistakes with their lines of code, then the numbers.
fn verdict(found: &Found) -> Markup {
    html! {
        section class="found" aria-labelledby="found-title" {
            h2 id="found-title" class="unseen" { (text(texts::FOUND)) }
            @for mistake in &found.mistakes {
                div class="mistake" {
                    h3 { code { (mistake.id) } " " (tr!("at {step}", step = mistake.step)) }
                    p { (prose(&mistake.summary)) }
                    dl {
                        dt class="bad" { (tr!("  wrong   ").trim()) } dd { code { (mistake.wrong) } }
                        dt class="good" { (tr!("  right   ").trim()) } dd { code { (mistake.right) } }
                    }
                    p class="silent" { (prose(&tr!("Why no error is raised: {silent}", silent = mistake.silent))) }
                }
            }
            div class="numbers" {
                @for line in &found.lines { p class="line" { (line) } }
                @if let Some((step, cell)) = &found.first {
                    p { a class="first" href=(address(&shown(step), cell)) { (text(texts::FIRST_BAD)) } }
                }
            }
        }
    }
}

/// The steps as a picture of their flow, which is also the list of them; behind it parameters and parts.
fn list(steps: &[StepSheet]) -> Markup {
    let drawn = placed(steps);
    let size = |of: fn(&Drawn) -> usize, own| drawn.iter().map(of).max().unwrap_or(0) + own;
    let (right, bottom) = (size(Drawn::x, WIDTH), size(Drawn::y, HEIGHT));
    let link = |(at, step): (usize, &StepSheet), is_drawn: bool| {
        html! {
            a href=(address(&shown(&step.name), &[])) data-step=(at) {
                span class="name" { (shown(&step.name)) }
                @if is_drawn { span class="thumb" aria-hidden="true" {} }
                span class="size" { (step.size()) }
                @if let Some((class, told)) = &step.badge {
                    // What stands in brackets is told beside the step's title.
                    @let brief = told.split(['(', '（']).next().unwrap_or_default().trim_end();
                    span class={ "badge " (class) } { (brief) }
                }
            }
        }
    };
    let details: Vec<(usize, &StepSheet)> =
        steps.iter().enumerate().filter(|(_, step)| step.is_detail).collect();
    html! {
        div class="flow" tabindex="0" role="group" aria-label=(text(texts::FLOW)) {
            ol style={ "width:" (right) "px;height:" (bottom) "px" } {
                @for (own, step) in drawn.iter().filter_map(|own| Some((own, steps.get(own.at)?))) {
                    li style={ "left:" (own.x()) "px;top:" (own.y()) "px" } {
                        (link((own.at, step), true))
                        svg aria-hidden="true" { @for line in &own.lines { path d=(line) {} } }
                    }
                }
            }
        }
        @if !details.is_empty() {
            details {
                summary { (text(texts::DETAILS)) }
                ul { @for step in details { li { (link(step, false)) } } }
            }
        }
    }
}

fn controls(sheet: &Sheet) -> Markup {
    html! {
        div class="go" {
            button type="button" id="previous" { (text(texts::PREVIOUS)) }
            button type="button" id="next" { (text(texts::NEXT)) }
            button type="button" id="play" aria-pressed="false" { (text(texts::PLAY)) }
            button type="button" class="menu" popovertarget="menu" { (text(texts::MENU)) }
            div class="controls" id="menu" popover role="group" aria-label=(text(texts::CONTROLS)) {
                label id="head-box" { (text(texts::HEAD)) " " select id="head" {} }
                label id="item-box" { (text(texts::ITEM)) " " select id="item" {} }
                @if !sheet.sides.is_empty() {
                    label id="side-box" { (text(texts::SIDE)) " "
                        select id="side" {
                            @for (at, side) in sheet.sides.iter().enumerate() { option value=(at) { (side) } }
                            option value="2" { (text(texts::DIFFERENCE)) }
                        }
                    }
                }
                span class="views" role="group" aria-label=(text(texts::VIEW)) {
                    @for (view, name) in texts::VIEWS {
                        button type="button" data-view=(view) aria-pressed="false" { (text(name)) }
                    }
                }
                button type="button" id="numpy" { (text(texts::COPY_NUMPY)) }
                button type="button" id="csv" { (text(texts::COPY_CSV)) }
            }
        }
    }
}

/// What there is to say of a step before its numbers.
fn about(at: usize, step: &StepSheet, tour: &[Stop]) -> Markup {
    html! {
        section class="about" id={ "step-" (at) } aria-labelledby={ "title-" (at) } {
            h2 id={ "title-" (at) } tabindex="-1" {
                code { (shown(&step.name)) }
                @if !step.title.is_empty() { " " span class="title" { (step.title) } }
                @if let Some((class, told)) = &step.badge { " " span class={ "badge " (class) } { (told) } }
            }
            @if !tour.is_empty() { (stops(&step.name, tour)) }
            @if let Some(formula) = &step.formula {
                div class="formula" {
                    (equation(&shown(&step.name), &shown(formula)))
                    @if let Some(constant) = &step.constant { p class="constant" { (prose(constant)) } }
                }
            }
            div class="text" {
                p class="why" { (prose(step.why)) }
                @for moves in &step.moves { p class="moves" { (moves) } }
                p class="shape" { (text(texts::SHAPE)) " " (step.shape) }
            }
        }
    }
}

/// The stops of the tour at a step, and the way to all others.
fn stops(step: &str, tour: &[Stop]) -> Markup {
    html! {
        details class="tour" {
            summary { (tr!("A tour in {count} stops", count = tour.len())) }
            ol {
                @for (at, stop) in tour.iter().enumerate() {
                    li {
                        a href=(address(&stop.cell.step, &stop.cell.index)) title=(stop.title)
                            aria-current=[stop.is_at(step).then_some("true")] { (at + 1) }
                    }
                }
            }
            @for (at, stop) in tour.iter().enumerate().filter(|(_, stop)| stop.is_at(step)) {
                h3 { (at + 1) ". " (stop.title) }
                p { (prose(&stop.text)) }
            }
        }
    }
}
