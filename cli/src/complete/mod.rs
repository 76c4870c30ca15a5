//! Completion: candidates for the word at the cursor, with names from the control planes.
//!
//! A shell calls the command with [`VAR`] set, as the script of `completion` tells it. kubectl calls the program [`FOR_KUBECTL`]
//! with the words after `kubectl compute`. Both get the candidates of one engine.

mod names;
mod words;

use std::{
    ffi::{OsStr, OsString},
    fmt::Write as _,
    io::Write,
    path::Path,
};

use clap::Command;
use clap_complete::{
    Shell,
    engine::{CompletionCandidate, complete},
    env::Shells,
};

use crate::{exit::Exit, output::write};

/// Name of the binary.
pub const NAME: &str = "kubectl-compute";

/// Name under which kubectl looks for the completion of this plugin.
pub const FOR_KUBECTL: &str = "kubectl_complete-compute";

/// Variable with which a shell asks for candidates. Its value is the name of the shell.
pub const VAR: &str = "KUBECTL_COMPUTE_COMPLETE";

/// Variable with the number of the word at the cursor. Shells without it end the words there.
const INDEX: &str = "_CLAP_COMPLETE_INDEX";

/// Variable with the separator of bash.
const SEPARATOR: &str = "_CLAP_IFS";

/// Directives of kubectl for the shell: add no space, complete no files.
const NO_SPACE: u8 = 2;
const NO_FILES: u8 = 4;

/// Prints candidates if the command was started for them. Whatever fails, there are no candidates: a shell would show a message in
/// the middle of a line.
pub fn run(args: &[OsString], out: &mut dyn Write) -> Option<Exit> {
    let (program, words) = args.split_first()?;
    if Path::new(program).file_stem() == Some(OsStr::new(FOR_KUBECTL)) {
        let all: Vec<OsString> = [OsString::from(NAME)].into_iter().chain(words.iter().cloned()).collect();
        let _ = write(out, &for_kubectl(&all));
        return Some(Exit::Well);
    }
    let shell = std::env::var(VAR).ok().filter(|shell| !shell.is_empty())?;
    let start = words.iter().position(|word| word == "--").map_or(words.len(), |at| at + 1);
    let index = std::env::var(INDEX).ok().and_then(|index| index.parse().ok());
    let _ = write(out, &for_shell(&shell, words[start..].to_vec(), index));
    Some(Exit::Well)
}

/// Returns the script that makes a shell ask this command.
///
/// # Errors
/// The script cannot be made.
pub fn script(shell: Shell) -> Result<String, std::io::Error> {
    let mut text = Vec::new();
    let name = shell.to_string();
    let shells = Shells::builtins();
    let completer = shells.completer(&name).ok_or_else(|| std::io::Error::other(format!("{name} is not known")))?;
    completer.write_registration(VAR, NAME, NAME, NAME, &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the candidates as a shell takes them.
fn for_shell(shell: &str, words: Vec<OsString>, index: Option<usize>) -> String {
    let shells = Shells::builtins();
    let Some(completer) = shells.completer(shell) else { return String::new() };
    if completer.name() == "bash" {
        return for_bash(words, index.unwrap_or_default());
    }
    let index = index.unwrap_or(words.len().saturating_sub(1));
    let mut words = words;
    if words.len() <= index {
        words.push(OsString::new());
    }
    let mut text = Vec::new();
    let dir = std::env::current_dir().ok();
    match completer.write_complete(&mut command(&words, index), words, dir.as_deref(), &mut text) {
        Ok(()) => String::from_utf8_lossy(&text).into_owned(),
        Err(_) => String::new(),
    }
}

/// Returns the candidates as bash takes them. It splits `--context=x` into three words, and replaces the last one only.
fn for_bash(mut words: Vec<OsString>, mut index: usize) -> String {
    words.truncate(index + 1);
    words.resize(index + 1, OsString::new());
    for at in (1..words.len()).rev() {
        if words[at] == "=" && words[at - 1].to_string_lossy().starts_with("--") && at < index {
            words.remove(at);
            index -= 1;
        }
    }
    let separator = std::env::var(SEPARATOR).unwrap_or_else(|_| "\n".to_owned());
    let values: Vec<String> = candidates(&words, index).iter().map(value).collect();
    values.join(&separator)
}

/// Returns the candidates as kubectl takes them: one on each line, with a tab and its description, and a directive at the end.
fn for_kubectl(words: &[OsString]) -> String {
    let index = words.len().saturating_sub(1);
    let current = words.last().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    // The shell adds the flag itself.
    let flag = current.split_once('=').filter(|_| current.starts_with('-')).map(|(flag, _)| format!("{flag}="));
    let all = candidates(words, index);
    let mut text = String::new();
    let mut space = false;
    for candidate in &all {
        let mut word = value(candidate);
        if let Some(flag) = &flag {
            word = word.strip_prefix(flag).unwrap_or(&word).to_owned();
        } else if word.starts_with('-') && !current.starts_with('-') {
            continue;
        }
        space |= !word.ends_with(['/', '=']);
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let _ = match help.lines().next() {
            Some(help) => writeln!(text, "{word}\t{help}"),
            None => writeln!(text, "{word}"),
        };
    }
    let directive = if space || text.is_empty() { NO_FILES } else { NO_FILES | NO_SPACE };
    let _ = writeln!(text, ":{directive}");
    text
}

fn candidates(words: &[OsString], index: usize) -> Vec<CompletionCandidate> {
    let dir = std::env::current_dir().ok();
    complete(&mut command(words, index), words.to_vec(), index, dir.as_deref()).unwrap_or_default()
}

/// Returns the command with a source of candidates at each argument that has names. Flags are candidates only after a dash, or if
/// there is nothing else.
fn command(words: &[OsString], index: usize) -> Command {
    let command = names::attach(words::command(), &words::Line::of(words, index));
    let is_flag = words.get(index).is_some_and(|word| word.to_string_lossy().starts_with('-'));
    if is_flag { command } else { hide_flags(command) }
}

fn hide_flags(command: Command) -> Command {
    let command = command.disable_help_flag(true).disable_version_flag(true);
    command.mut_args(|arg| if arg.is_positional() { arg } else { arg.hide(true) }).mut_subcommands(hide_flags)
}

fn value(candidate: &CompletionCandidate) -> String {
    // A line break in a name would be another candidate.
    candidate.get_value().to_string_lossy().replace(['\n', '\t', '\u{b}'], " ")
}

#[cfg(test)]
mod tests;
