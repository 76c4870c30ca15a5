//! Functions stay short, and a file has one subject.

use std::{collections::BTreeMap, fs, process::Command};

use super::{root, rust_files, skipping::skipped};

/// Largest checked-in file, in bytes. Generated definitions come near it.
const BYTES_OF_A_FILE: usize = 200_000;
/// Largest file, in lines. The limit only catches a file that has grown several subjects.
const LINES_OF_A_FILE: usize = 1000;
const LINES_OF_A_FUNCTION: usize = 80;

/// Returns every function of a file, with its number of lines from signature to end. In formatted code, the end is a brace with
/// the indentation of the signature. For a trait function without a body it is a semicolon.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = declared(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let ends = |line: &&str| {
            let Some(rest) = line.strip_prefix(indent).filter(|rest| !rest.starts_with(' ')) else { return false };
            rest == "}"
                || rest.ends_with(';')
                || rest.ends_with("{}")
                || declared(line).is_some() && rest.ends_with('}')
        };
        let length = lines[at..].iter().position(ends).map_or(lines.len() - at, |last| last + 1);
        found.push((name, length));
    }
    found
}

/// Returns the name of the function with a signature that begins on this line.
fn declared(line: &str) -> Option<&str> {
    let (modifiers, rest) = line.trim_start().split_once("fn ").filter(|(before, _)| !before.contains("//"))?;
    let is_modifier = |word: &str| word.starts_with("pub") || ["const", "async"].contains(&word);
    let name = rest.split(['(', '<']).next()?;
    modifiers.split_whitespace().all(is_modifier).then_some(name)
}

#[test]
fn files_and_functions_stay_within_the_line_limits() {
    let mut seen = 0;
    let mut long = BTreeMap::new();
    for file in ["src", "tests", "benches"].iter().flat_map(|dir| rust_files(&root().join(dir))) {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let lines = text.lines().count();
        if lines > LINES_OF_A_FILE {
            long.insert(name.clone(), lines);
        }
        for (function, lines) in functions(&text) {
            seen += 1;
            let function = format!("{name}: {function}");
            if lines > LINES_OF_A_FUNCTION {
                long.insert(function, lines);
            }
        }
    }
    assert!(seen > 1000, "the reader of functions sees only {seen}: it is broken");
    assert!(long.is_empty(), "at most {LINES_OF_A_FILE} lines, and {LINES_OF_A_FUNCTION} a function: {long:#?}");
}

/// An API server of 105 MB was committed together with a change of a few lines.
#[test]
fn checked_in_files_are_small_text() {
    let tracked = Command::new("git").current_dir(root()).args(["ls-files", "-z"]).output();
    let Some(tracked) = tracked.ok().filter(|out| out.status.success()) else {
        skipped("git does not know the files of this folder");
        return;
    };
    let names = String::from_utf8(tracked.stdout).unwrap();
    let mut seen = 0;
    for name in names.split_terminator('\0') {
        let Ok(content) = fs::read(root().join(name)) else { continue }; // about to be deleted
        assert!(content.len() <= BYTES_OF_A_FILE, "{name}: {} bytes", content.len());
        assert!(String::from_utf8(content).is_ok(), "{name} is no text");
        seen += 1;
    }
    assert!(seen > 400, "git knows only {seen} files");
}

#[test]
fn function_length_counts_from_signature_to_end() {
    let text = "trait T {\n    fn a(&self) -> u8;\n    fn b(\n        &self,\n    );\n}\n\
                pub(super) async fn c() {\n    let x = || {\n        1\n    };\n}\n\
                impl X {\n    const fn d() {}\n\n    fn e() {\n        if x {\n        }\n    }\n}\n// No fn here\n";
    assert_eq!(functions(text), [("a", 1), ("b", 3), ("c", 5), ("d", 1), ("e", 4)]);
}
