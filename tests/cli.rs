//! The real binary: its exact output, its exit codes, and what it leaves behind.

#[test]
fn transcripts() {
    trycmd::TestCases::new().case("tests/cli/*.trycmd");
}
