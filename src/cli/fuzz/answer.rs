//! What did a kernel make of a case?

use std::fs;
use std::path::{Path, PathBuf};

use candle_core::DType;
use serde::{Deserialize, Serialize};

use super::case::{Case, turned};
use base::choices;
use base::error::Result;
use config::QkvFormat;
use file::{Entry, read_place};
use foreign::meanings;
use program::Name;

choices! {
    /// How a kernel did with a case.
    State {
        /// What it gave is what it should be.
        #[default]
        Same = "same",
        /// What it gave is something else.
        Differs = "differs",
        /// What it gave has another shape, or is none of the tensors that are wanted.
        Shape = "shape",
        /// It refused the case by a check of its own.
        Refused = "refused",
        /// It failed.
        Failed = "failed",
        /// It took too long.
        Slow = "slow",
        /// It wrote into its inputs.
        Overwrites = "overwrites",
        /// What it gave is its input.
        Aliases = "aliases",
        /// It was not checked, as the others took too long.
        Unchecked = "unchecked",
    }
}

impl State {
    /// The name in the language in force.
    pub fn told(self) -> &'static str {
        match self {
            Self::Same => tr!("same"),
            Self::Differs => tr!("differs"),
            Self::Shape => tr!("shape"),
            Self::Refused => tr!("refused"),
            Self::Failed => tr!("failed"),
            Self::Slow => tr!("slow"),
            Self::Overwrites => tr!("overwrites"),
            Self::Aliases => tr!("aliases"),
            Self::Unchecked => tr!("unchecked"),
        }
    }
}

/// What is said of a case where there are no numbers to check, in the file NAME.json beside outputs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Said {
    /// How it did.
    pub state: State,
    /// In which words.
    #[serde(default)]
    pub said: String,
}

impl Said {
    /// A state, and the words for it.
    pub fn of(state: State, said: impl Into<String>) -> Self {
        Self { state, said: said.into() }
    }
}

/// The folder of a sweep: what kernels read, and what they write.
pub struct Folder(pub PathBuf);

impl Folder {
    /// Where a case's inputs are.
    pub fn input(&self, case: &Case) -> PathBuf {
        self.0.join("in").join(format!("{}.safetensors", case.name()))
    }

    /// Where its outputs are to be.
    pub fn output(&self, case: &Case) -> PathBuf {
        self.0.join("out").join(format!("{}.safetensors", case.name()))
    }

    /// What a kernel gave for a case, in the order of axes of the run; or why there is nothing to check.
    pub fn answer(&self, case: &Case, format: QkvFormat) -> Result<Vec<Entry>, Said> {
        let output = self.output(case);
        if let Ok(text) = fs::read_to_string(output.with_extension("json")) {
            return Err(serde_json::from_str(&text)
                .unwrap_or_else(|error| Said::of(State::Failed, error.to_string())));
        }
        if !output.exists() {
            return Err(Said::of(State::Failed, tr!("it wrote no output")));
        }
        read(&output, case, format)
    }
}

/// The steps of a file of outputs.
fn read(path: &Path, case: &Case, format: QkvFormat) -> Result<Vec<Entry>, Said> {
    let failed = |error: &base::Error| Said::of(State::Failed, error.to_string());
    let entries = read_place(path).map_err(|error| failed(&error))?.entries;
    let is_only = entries.len() == 1;
    let mut made: Vec<Entry> = Vec::new();
    for Entry { name, tensor, .. } in entries {
        let step = step_of(&name).or(is_only.then_some(Name::HeadOutputs));
        let Some(step) = step else { continue };
        let shape = case.shape(step);
        let own = if shape.len() == 4 { turned(&tensor, format) } else { Ok(tensor.clone()) };
        let own = own.map_err(|error| failed(&error))?;
        if own.dims() != shape {
            return Err(misshapen(&name, tensor.dims(), &shape, format));
        }
        if !matches!(own.dtype(), DType::F64 | DType::F32 | DType::F16 | DType::BF16) {
            let said =
                tr!("{name} is of type {dtype}", name, dtype = file::dtype_name(own.dtype()));
            return Err(Said::of(State::Shape, said));
        }
        made.push(Entry::of(step.as_str(), own));
    }
    let wanted = [Name::QHeads, Name::KHeads, Name::VHeads].map(Name::gradient);
    let wanted = wanted.iter().filter(|_| case.settings.backward == Some(true));
    let lacks = std::iter::once(&Name::HeadOutputs)
        .chain(wanted)
        .find(|step| !made.iter().any(|entry| entry.name == step.as_str()));
    match lacks {
        None => Ok(made),
        Some(step) => {
            let name = called(*step);
            Err(Said::of(State::Shape, tr!("it gave no {name}", name)))
        }
    }
}

fn misshapen(name: &str, found: &[usize], shape: &[usize], format: QkvFormat) -> Said {
    let mut wanted = shape.to_vec();
    if format == QkvFormat::Bshd && wanted.len() == 4 {
        wanted.swap(1, 2);
    }
    let (found, wanted) = (format!("{found:?}"), format!("{wanted:?}"));
    Said::of(State::Shape, tr!("{name} is {found}, and not {wanted}", name, found, wanted))
}

/// The step that an output is.
fn step_of(name: &str) -> Option<Name> {
    let own = Name::in_files(name).into_iter().chain(meanings(name));
    own.into_iter().find_map(|step| match step {
        Name::HeadOutputs | Name::Output | Name::Concat => Some(Name::HeadOutputs),
        Name::Lse => Some(Name::Lse),
        _ => [(Name::Q, Name::QHeads), (Name::K, Name::KHeads), (Name::V, Name::VHeads)]
            .into_iter()
            .find(|(whole, heads)| [whole.gradient(), heads.gradient()].contains(&step))
            .map(|(_, heads)| heads.gradient()),
    })
}

/// What an output is called.
fn called(step: Name) -> &'static str {
    match step {
        step if step == Name::QHeads.gradient() => "dq",
        step if step == Name::KHeads.gradient() => "dk",
        step if step == Name::VHeads.gradient() => "dv",
        _ => "out",
    }
}
