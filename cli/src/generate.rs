//! `completion` and `man`: files for shells and for man.

use std::{io::Write, path::PathBuf};

use clap::{Args as ClapArgs, CommandFactory};
use clap_complete::Shell;

use crate::{
    complete::{self, NAME},
    exit::Exit,
    flags::Flags,
    output::write,
};

/// Arguments of `completion`.
#[derive(Clone, Debug, ClapArgs)]
pub struct Completion {
    /// The shell.
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Clone, Debug, ClapArgs)]
pub struct Man {
    /// Folder for the pages. It is created if it does not exist.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Prints the completion of a shell.
///
/// # Errors
/// One line, with the exit code.
pub fn completion(args: &Completion, out: &mut dyn Write) -> Result<Exit, (Exit, String)> {
    let script = complete::script(args.shell);
    let script = script.map_err(|error| (Exit::CouldNotAsk, format!("the script cannot be made: {error}")))?;
    write(out, &script)?;
    Ok(Exit::Well)
}

/// Writes one page for each command.
///
/// # Errors
/// One line, with the exit code.
pub fn man(args: &Man, out: &mut dyn Write) -> Result<Exit, (Exit, String)> {
    let dir = args.dir.display();
    let failed = |error: std::io::Error| (Exit::CouldNotAsk, format!("{dir} cannot be written: {error}"));
    std::fs::create_dir_all(&args.dir).map_err(failed)?;
    clap_mangen::generate_to(Flags::command().name(NAME).bin_name(NAME), &args.dir).map_err(failed)?;
    write(out, &format!("Man pages are in {dir}\n"))?;
    Ok(Exit::Well)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn completion_of_each_shell_asks_the_command() {
        for shell in Shell::value_variants() {
            let mut out = Vec::new();
            completion(&Completion { shell: *shell }, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            let asks = text.contains(&format!("{}={shell}", complete::VAR))
                || text.contains(&format!("{}=\"{shell}\"", complete::VAR))
                || text.contains(&format!("$env:{} = \"{shell}\"", complete::VAR));
            assert!(asks && text.contains(NAME), "{shell}: {text}");
        }
    }

    #[test]
    fn man_has_a_page_for_each_command() {
        let dir = std::env::temp_dir().join(format!("kubectl-compute-man-{}", std::process::id()));
        man(&Man { dir: dir.clone() }, &mut Vec::new()).unwrap();
        let main = std::fs::read_to_string(dir.join("kubectl-compute.1")).unwrap();
        assert!(main.contains("Exit codes"), "{main}");
        for command in Flags::command().get_subcommands() {
            let page = dir.join(format!("{NAME}-{}.1", command.get_name()));
            assert!(std::fs::read_to_string(&page).is_ok_and(|text| text.contains(".TH")), "{}", page.display());
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
