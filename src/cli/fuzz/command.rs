//! How is a kernel's command run for a case?

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::answer::{Folder, Said, State};
use super::case::Case;
use base::error::{Error, Result, quoted, quoted_path, refuse};
use file::io_reason;

/// A command ends with it for a case that it does not take, as tests that are skipped do.
const REFUSED: i32 = 77;

/// How long is slept between two looks at a command.
const BEAT: Duration = Duration::from_millis(2);

/// How much is told of what a command says.
const TOLD: usize = 200;

/// The words of a command, and how long each of its runs may take.
pub struct Kernel {
    words: Vec<String>,
    patience: Duration,
}

impl Kernel {
    /// A command, in words as a shell reads them but for its variables.
    pub fn new(command: &str, patience: Duration) -> Result<Self> {
        let Some(mut words) = shlex::split(command).filter(|words| !words.is_empty()) else {
            let what = tr!("{command} is no command", command = quoted(command));
            return refuse(what, "close its quotes, as in 'python kernel.py {in} {out}'");
        };
        let has = |place: &str| words.iter().any(|word| word.contains(place));
        if !has("{in}") && !has("{out}") && !has("{dir}") {
            words.extend(["{in}", "{out}"].map(str::to_owned));
        }
        Ok(Self { words, patience })
    }

    /// Runs it for every case, or once for all of them where it takes a folder.
    pub fn run(&self, folder: &Folder, cases: &[Case]) -> Result<()> {
        let log = folder.0.join("said.txt");
        if self.words.iter().any(|word| word.contains("{dir}")) {
            let said = self.started(&[("{dir}", &folder.0)], &log)?;
            return match said {
                Some(Said { state: State::Slow | State::Failed, said }) => {
                    let what = tr!("the command failed: {said}", said = quoted(&said));
                    refuse(
                        what,
                        "mend the command: it is to read every file of {dir}/in and to write one of the same name to {dir}/out",
                    )
                }
                _ => Ok(()),
            };
        }
        for case in cases {
            let (input, output) = (folder.input(case), folder.output(case));
            let before = fs::read(&input).ok();
            let mut said = self.started(&[("{in}", &input), ("{out}", &output)], &log)?;
            if said.is_none() && before != fs::read(&input).ok() {
                said =
                    Some(Said::of(State::Overwrites, tr!("it wrote into the file of its inputs")));
            }
            if let Some(said) = said {
                let text = serde_json::to_string(&said).unwrap_or_default();
                let path = output.with_extension("json");
                fs::write(&path, text).map_err(|error| unwritten(&path, &error))?;
            }
        }
        Ok(())
    }

    /// Runs it, and gives what went wrong.
    fn started(&self, places: &[(&str, &Path)], log: &Path) -> Result<Option<Said>> {
        let filled = self.words.iter().map(|word| {
            places.iter().fold(word.clone(), |word, (place, path)| {
                word.replace(place, &path.to_string_lossy())
            })
        });
        let filled: Vec<String> = filled.collect();
        let [program, rest @ ..] = &filled[..] else { return Ok(None) };
        let file = || File::create(log).map_err(|error| unwritten(log, &error));
        let (out, err) = (file()?, file()?);
        let mut command = Command::new(program);
        command.args(rest).stdin(Stdio::null()).stdout(out).stderr(err);
        let mut child = command.spawn().map_err(|error| {
            let reason = io_reason(&error);
            let what = tr!("{program} cannot be run: {reason}", program = quoted(program), reason);
            Error::config(what, "give a command that is on the path, or its file")
        })?;
        let end = Instant::now() + self.patience;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(failure(status, log)),
                Ok(None) if Instant::now() < end => sleep(BEAT),
                Ok(None) => {
                    // What has ended meanwhile cannot be ended.
                    let _ = child.kill();
                    let _ = child.wait();
                    let seconds = self.patience.as_secs_f64();
                    return Ok(Some(Said::of(
                        State::Slow,
                        tr!("it was ended after {seconds} s", seconds),
                    )));
                }
                Err(error) => {
                    return Ok(Some(Said::of(State::Failed, io_reason(&error))));
                }
            }
        }
    }
}

/// What an end says of a command: nothing where it did its work.
fn failure(status: ExitStatus, log: &Path) -> Option<Said> {
    if status.success() {
        return None;
    }
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let last: String = last.unwrap_or_default().chars().take(TOLD).collect();
    let said = match (status.code(), last.is_empty()) {
        (Some(code), true) => tr!("exit code {code}", code),
        (None, true) => tr!("a signal ended it").to_owned(),
        (_, false) => last,
    };
    let state = if status.code() == Some(REFUSED) { State::Refused } else { State::Failed };
    Some(Said::of(state, said))
}

/// Why a file of the sweep cannot be written.
pub fn unwritten(path: &Path, error: &io::Error) -> Error {
    let reason = io_reason(error);
    let what = tr!("{path} cannot be written: {reason}", path = quoted_path(path), reason);
    Error::config(what, "free some space, or give a folder that can be written")
}

#[cfg(test)]
mod tests {
    #[test]
    fn words_are_those_of_a_shell() {
        let split = |text| shlex::split(text).map(|words| words.join("|"));
        assert_eq!(split("python  k.py {in}").as_deref(), Some("python|k.py|{in}"));
        assert_eq!(split(r#"a 'b c' "d \" e" f\ g ''"#).as_deref(), Some(r#"a|b c|d " e|f g|"#));
        assert_eq!(split("a 'b"), None);
        assert_eq!(split("a \\"), None);
    }
}
