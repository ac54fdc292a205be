//! Is a kernel right at all the shapes at which kernels break?

mod answer;
mod case;
mod command;
mod common;
mod judged;
mod page;
mod rows;

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::args::{Format, FuzzArgs};
use super::outcome::Outcome;
use super::written::print_json;
use answer::Folder;
use base::error::{Result, refuse};
use case::{Asked, Case};
use check::Tolerances;
use command::{Kernel, unwritten};
use config::{QkvFormat, Settings};
use file::Output;
use judged::{Sweep, judge};
use page::{Told, list_json, list_page};
pub use rows::{Kind, Takes};
use view::{Style, write_text};

/// Sweeps a kernel.
pub fn fuzz(args: &FuzzArgs) -> Result<Outcome> {
    let base = args.run.settings()?;
    refuse_what_rows_say(&base)?;
    let cases = args.asked(base.clone()).cases()?;
    if args.list {
        return args.show_list(&cases);
    }
    if let Some(folder) = &args.write {
        let folder = Folder(folder.clone());
        write(&folder, &cases, base.qkv_format.unwrap_or_default())?;
        return args.show_list(&cases);
    }
    if let Some(folder) = &args.read {
        return args.told(&cases, &base, &Folder(folder.clone()));
    }
    let Some(command) = &args.command else { return Ok(Outcome::Same) };
    let kernel = Kernel::new(command, Duration::from_secs_f64(args.timeout))?;
    let private = tempfile::Builder::new().prefix("mha-trace-").tempdir();
    let private = private.map_err(|error| unwritten(&std::env::temp_dir(), &error))?;
    let folder = Folder(private.path().to_owned());
    write(&folder, &cases, base.qkv_format.unwrap_or_default())?;
    kernel.run(&folder, &cases)?;
    args.told(&cases, &base, &folder)
}

/// Refuses the settings that each row of the sweep has by itself.
fn refuse_what_rows_say(base: &Settings) -> Result<()> {
    let stated = [
        ("seq_len", base.seq_len.is_some()),
        ("kv_len", base.kv_len.is_some()),
        ("lengths", base.lengths.is_some()),
    ];
    if let Some((key, _)) = stated.iter().find(|(_, is_stated)| *is_stated) {
        let what = tr!("`{key}` is what the cases of a sweep differ in", key);
        return refuse(what, "leave it out; --list shows the cases");
    }
    if matches!(base.qkv_format, Some(QkvFormat::Sbhd | QkvFormat::Thd)) {
        return refuse("a sweep has q, k and v as bhsd or bshd", tr!("set `qkv_format=bshd`"));
    }
    Ok(())
}

/// Writes what the kernel is to read, and makes room for what it writes.
fn write(folder: &Folder, cases: &[Case], format: QkvFormat) -> Result<()> {
    for part in ["in", "out", "checked"] {
        made(&folder.0.join(part))?;
    }
    for case in cases {
        Output::create(&folder.input(case))?.write(&case.inputs(format)?)?;
    }
    Ok(())
}

/// Makes a folder, if it is not there.
fn made(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| unwritten(folder, &error))
}

impl FuzzArgs {
    fn asked(&self, base: Settings) -> Asked {
        Asked {
            base,
            tile: self.tile_size,
            kinds: self.dtypes.clone(),
            takes: self.takes.clone(),
            skip: self.skip.clone(),
            only: self.only.clone(),
            rows: self.cases,
        }
    }

    fn show_list(&self, cases: &[Case]) -> Result<Outcome> {
        match self.report.format {
            Format::Table => self.report.print(list_page(cases))?,
            Format::Json => print_json(&list_json(cases))?,
        }
        Ok(Outcome::Same)
    }

    /// Judges what is in the folder, and tells it.
    fn told(&self, cases: &[Case], base: &Settings, folder: &Folder) -> Result<Outcome> {
        made(&folder.0.join("checked"))?;
        if let Some(keep) = &self.keep {
            made(keep)?;
        }
        let tolerances = Tolerances::default();
        let sweep: Sweep = judge(cases, base, folder, &tolerances, self.keep.as_deref())?;
        let told = Told::new(&sweep, base, self.tile_size);
        match self.report.format {
            Format::Table => self.report.print(told.page())?,
            Format::Json => {
                let mut text = Vec::new();
                let style = Style { colors: None, ..self.report.style() };
                write_text(told.page(), style, &mut text).map_err(super::written::unwritten)?;
                print_json(&told.json(&String::from_utf8_lossy(&text)))?;
            }
        }
        Ok(if told.is_same() { Outcome::Same } else { Outcome::Different })
    }
}
