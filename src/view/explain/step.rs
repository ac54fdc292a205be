//! A step, explained by its name alone.

use serde_json::{Value, json};

use crate::View;
use crate::label::{moves, shape};
use crate::number::number;
use crate::page::Block;
use base::lang;
use program::{Cell, Name, Op, Program, Step};

/// What a step does, why it is there, and what it reads and is read by. Nothing is computed for it. `run` is what stands
/// behind the command that explains a number of the same run, each word with a space before it; without it that command
/// is not told.
pub fn step_page<V>(
    program: &Program<V>,
    step: &Step<V>,
    view: &View,
    run: Option<&str>,
) -> Vec<Block> {
    let name = step.name;
    let say = |text: String| Block::Prose(1, text);
    let mut blocks = vec![Block::Title(format!("{name} · {}", name.title()))];
    blocks.push(match (&step.op, step.op.operation().facts().constant) {
        (Op::Given, _) => {
            say(tr!("given: an input of the run, not computed from other steps").to_owned())
        }
        (_, None) => say(format!("{name} = {}", program.formula(step))),
        (_, Some((constant, of, value))) => {
            let value = number(value, view.decimals);
            say(format!("{name} = {}, {constant} = {of} = {value}", program.formula(step)))
        }
    });
    blocks.extend(moves(program, step).into_iter().map(say));
    blocks.extend([Block::Gap, say(tr!("why: {why}", why = name.why())), Block::Gap]);
    blocks.extend(
        program
            .read_by(step)
            .iter()
            .map(|read| say(tr!("reads {read} {axes}", read = read.name, axes = read.axes))),
    );
    blocks.push(say(tr!("shape {name} {axes}", name, axes = shape(program, step))));
    let readers: Vec<&str> = readers(program, name);
    blocks.push(match readers.as_slice() {
        [] => say(tr!("read by no other step: it is a result").to_owned()),
        readers => say(tr!("read by {readers}", readers = lang::list(readers))),
    });
    if let Some(run) = run {
        let first = Cell { step: name.to_string(), index: vec![0; step.axes.rank()] };
        let told = tr!("one number of it: mha-trace explain '{first}'{run}", first, run);
        blocks.extend([Block::Gap, say(told)]);
    }
    blocks
}

fn readers<V>(program: &Program<V>, name: Name) -> Vec<&'static str> {
    let reads = |step: &&Step<V>| program.read_by(step).iter().any(|read| read.name == name);
    program.steps().iter().filter(reads).map(|step| step.name.as_str()).collect()
}

/// The same as JSON.
pub fn step_json<V>(program: &Program<V>, step: &Step<V>) -> Value {
    let reads: Vec<Value> = program
        .read_by(step)
        .iter()
        .map(|read| json!({ "name": read.name, "axes": read.axes.names(), "shape": read.axes.shape() }))
        .collect();
    json!({
        "format": "mha-trace-step",
        "version": 1,
        "step": step.name,
        "title": step.name.title(),
        "formula": program.formula(step),
        "why": step.name.why(),
        "reads": reads,
        "axes": step.axes.names(),
        "shape": step.axes.shape(),
        "read_by": readers(program, step.name),
    })
}
