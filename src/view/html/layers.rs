//! The comparison of two recordings of a whole model as a page: a picture of the layers, and what was found.

use maud::{DOCTYPE, Markup, html};

use super::comparison::told;
use super::layout::head;
use super::spelled;
use super::texts::made_by;
use crate::by_layer::{Stretch, by_layer_page, name_of, stretches};
use crate::number::magnitude;
use crate::page::Spell;
use crate::report::{Sides, Tables};
use base::error::shown;
use base::lang::Language;
use check::{ByLayer, Line};

/// What the page adds to the style of the others.
const LAYERS: &str = "main{display:block}\
details.layer td,details.layer th{padding:.1rem .6rem;text-align:left}\
details.layer{border-bottom:1px solid var(--line)}\
details.layer>summary{display:flex;gap:.6rem;align-items:center;padding:.25rem 0;cursor:pointer}\
details.layer>summary>b{width:5rem}\
.cell{flex:1;min-width:.6rem;max-width:9rem;height:1.6rem;border:1px solid var(--line);background:linear-gradient(var(--bar),var(--bar)) bottom/100% var(--own-size) no-repeat}\
.cell.wrong{border:2px solid var(--own);background-image:linear-gradient(var(--own),var(--own))}\
pre.report{white-space:pre-wrap;overflow-wrap:anywhere}";

/// The smallest error that a picture shows, as a power of ten.
const LEAST: f64 = -8.0;

/// The page of a comparison of two whole models: a row for each layer, in which the parts stand in order of execution, as high
/// as the error that each adds by itself. A layer opens to its parts; what was found stands above.
#[must_use]
pub fn by_layer_html(found: &ByLayer, sides: Sides, spell: Spell) -> String {
    let lines = spelled(told(by_layer_page(found, sides, Tables::Hidden)), spell);
    let title = format!("{} · {}", shown(&found.left), shown(&found.right));
    let page = html! {
        (DOCTYPE)
        html lang=(Language::spoken().tag()) {
            (head(&title, "", LAYERS))
            body {
                header { h1 { (title) } }
                main {
                    pre class="report" { (lines.join("\n")) }
                    h2 { (tr!("Layers: what each part adds to the error by itself")) }
                    @for stretch in stretches(found) { (layer(&stretch)) }
                }
                footer { p { (made_by(env!("CARGO_PKG_VERSION"))) } }
            }
        }
    };
    page.into_string()
}

fn layer(Stretch { name, lines, is_first }: &Stretch) -> Markup {
    let number = |number: Option<f64>| number.map_or(String::new(), magnitude);
    html! {
        details class="layer" open[*is_first] {
            summary {
                b { (name) }
                @for line in *lines {
                    span.cell.wrong[line.is_wrong] style={ "--own-size:" (height(line)) "%" }
                        title={ (shown(&line.name)) ": " (number(line.own)) } {}
                }
            }
            table {
                thead { tr {
                    th scope="col" { (tr!("part")) } th scope="col" { (tr!("error before it")) }
                    th scope="col" { (tr!("adds by itself")) } th scope="col" { (tr!("error behind it")) }
                    th scope="col" { (tr!("known by")) }
                } }
                tbody { @for line in *lines { tr {
                    th scope="row" { (name_of(line)) } td { (number(line.inherited)) } td { (number(line.own)) }
                    td { (number(line.error)) } td { @if line.error.is_some() { (line.how.told()) } }
                } } }
            }
        }
    }
}

/// How much of its cell an error fills, in percent: the powers of ten between the least one and 1.
fn height(line: &Line) -> String {
    let own = line.own.filter(|own| *own > 0.0).map_or(LEAST, f64::log10);
    format!("{:.0}", (own.clamp(LEAST, 0.0) - LEAST) / -LEAST * 100.0)
}
