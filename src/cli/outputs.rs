//! Which files does a command write, and which of them may it not?

use std::path::PathBuf;

use super::interruption;
use super::values::flag;
use ::run::to_record;
use base::error::{Result, quoted_path, refuse};
use config::Config;
use file::{Output, Page};
use program::Trace;
use view::{View, latex, markdown, trace_html, trace_page};

/// Opens the files to be written, of which none may be one that the run reads.
pub fn open(paths: &[PathBuf], read: &[PathBuf]) -> Result<Vec<Output>> {
    let read: Vec<PathBuf> = read.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let mut outputs: Vec<Output> = Vec::new();
    if !paths.is_empty() {
        interruption::watch();
    }
    for path in paths {
        let output = interruption::begin(|| Output::create(path))?;
        if read.iter().any(|read| read == output.path()) {
            let what = tr!("-o {path} is a file that the run reads", path = quoted_path(path));
            return refuse(what, "write to another file");
        }
        if outputs.iter().any(|other| other.path() == output.path()) {
            let what = tr!("-o {path} is given twice", path = quoted_path(path));
            return refuse(what, "name every file once");
        }
        outputs.push(output);
    }
    Ok(outputs)
}

/// Writes the files of a run: records of it, and pages.
///
/// Records and pages for browsers have all of it, those for notes and slides what the view shows.
pub fn write(outputs: Vec<Output>, trace: &Trace, config: &Config, view: &View) -> Result<()> {
    let record = to_record(trace, config);
    outputs.into_iter().try_for_each(|output| match output.page() {
        None => output.write(&record),
        Some(Page::Markdown) => {
            output.write_page(&markdown(trace_page(trace, config, view), flag)?)
        }
        Some(Page::Latex) => output.write_page(&latex(trace_page(trace, config, view), flag)?),
        Some(_) => output.write_page(&trace_html(trace, config, flag)?),
    })
}

/// Opens the page of a report, which may be none of the files that are compared.
pub fn open_page(path: Option<&PathBuf>, read: &[PathBuf]) -> Result<Option<Output>> {
    let Some(path) = path else { return Ok(None) };
    let output = open(std::slice::from_ref(path), read)?.pop();
    if output.as_ref().is_some_and(|output| output.page() == Some(Page::Html)) {
        return Ok(output);
    }
    let what = tr!("-o {path} is not a page for browsers", path = quoted_path(path));
    refuse(what, "give it the extension .html; --format json prints the report for programs")
}
