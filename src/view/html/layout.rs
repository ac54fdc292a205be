//! The markup of a page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::address::address;
use super::flow::flow;
use super::math::equation;
use super::sheet::StepSheet;
use super::texts;
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
    pub summary: String,
    pub silent: &'static str,
    pub wrong: &'static str,
    pub right: &'static str,
}

/// The page, with its data.
pub fn page(sheet: &Sheet, notice: Option<&str>, data: &str) -> Markup {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
                  base-uri 'none'; form-action 'none'";
    html! {
        (DOCTYPE)
        html lang=(Language::spoken().tag()) {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (sheet.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a class="skip" href="#main" { (text(texts::SKIP)) }
                header {
                    h1 { (sheet.title) }
                    ul class="facts" { @for fact in &sheet.facts { li { (fact) } } }
                    @if let Some(notice) = notice { p class="notice" { (notice) } }
                    noscript { p class="notice" { (text(texts::NO_SCRIPT)) } }
                    @if let Some(found) = &sheet.found { (verdict(found)) }
                    @if sheet.steps.iter().any(|step| step.is_story) {
                        details class="flow-box" {
                            summary { (text(texts::FLOW)) }
                            div class="scroll" tabindex="0" role="group" aria-label=(text(texts::FLOW)) { (flow(&sheet.steps)) }
                        }
                    }
                }
                div class="columns" {
                    nav aria-label=(text(texts::STEPS)) { (list(&sheet.steps)) }
                    main id="main" tabindex="-1" {
                        (controls(sheet))
                        @for (at, step) in sheet.steps.iter().enumerate() { (about(at, step)) }
                        p id="said" role="status" {}
                        div id="view" {}
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

fn verdict(found: &Found) -> Markup {
    html! {
        section class="found" aria-labelledby="found-title" {
            h2 id="found-title" { (text(texts::FOUND)) }
            @for line in &found.lines { p class="line" { (line) } }
            @if let Some((step, cell)) = &found.first {
                p { a class="first" href=(address(&shown(step), cell)) { (text(texts::FIRST_BAD)) } }
            }
            @for mistake in &found.mistakes {
                div class="mistake" {
                    h3 { (mistake.id) }
                    p { (tr!("{summary}. {silent}", summary = mistake.summary, silent = mistake.silent)) }
                    dl {
                        dt class="bad" { (tr!("  wrong   ").trim()) } dd { code { (mistake.wrong) } }
                        dt class="good" { (tr!("  right   ").trim()) } dd { code { (mistake.right) } }
                    }
                }
            }
        }
    }
}

/// The steps: those of the story, and behind them parameters and parts.
fn list(steps: &[StepSheet]) -> Markup {
    let all = || steps.iter().enumerate();
    let item = |(at, step): (usize, &StepSheet)| {
        html! {
            li {
                a href=(address(&shown(&step.name), &[])) data-step=(at) {
                    span class="name" { (shown(&step.name)) }
                    span class="size" { (step.size()) }
                    @if let Some(badge) = step.badge {
                        span class={ "badge " (badge) } { (texts::badge(badge)) }
                    }
                }
            }
        }
    };
    let has_details = steps.iter().any(|step| step.is_detail);
    html! {
        ol { @for step in all().filter(|(_, step)| !step.is_detail) { (item(step)) } }
        @if has_details {
            details {
                summary { (text(texts::DETAILS)) }
                ul { @for step in all().filter(|(_, step)| step.is_detail) { (item(step)) } }
            }
        }
    }
}

fn controls(sheet: &Sheet) -> Markup {
    html! {
        div class="controls" role="group" aria-label=(text(texts::CONTROLS)) {
            button type="button" id="previous" { (text(texts::PREVIOUS)) }
            button type="button" id="next" { (text(texts::NEXT)) }
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

/// What there is to say of a step before its numbers.
fn about(at: usize, step: &StepSheet) -> Markup {
    html! {
        section class="about" id={ "step-" (at) } aria-labelledby={ "title-" (at) } {
            h2 id={ "title-" (at) } tabindex="-1" {
                code { (shown(&step.name)) }
                @if !step.title.is_empty() { " " span class="title" { (step.title) } }
                @if let Some(badge) = step.badge { " " span class={ "badge " (badge) } { (texts::badge(badge)) } }
            }
            @if let Some(formula) = &step.formula {
                div class="formula" {
                    (equation(&shown(&step.name), &shown(formula)))
                    @if let Some(constant) = &step.constant { p class="constant" { (constant) } }
                }
            }
            @for moves in &step.moves { p class="moves" { (moves) } }
            p class="why" { (step.why) }
            p class="shape" { (text(texts::SHAPE)) " " (step.shape) }
        }
    }
}
