//! tmp
fn main() {
    let run = mha_trace::Run::new(&mha_trace::Settings::default(), mha_trace::source::Sources::default()).unwrap();
    let trace = run.trace().unwrap();
    for step in trace.steps() { println!("{} = {} {}\n{}", step.name, trace.formula(step), step.axes, step.value); }
}
