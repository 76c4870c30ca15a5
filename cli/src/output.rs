//! Output in the form that the flags ask for.

use std::io::{IsTerminal, Write};

use serde::Serialize;

use crate::{
    exit::Exit,
    flags::{Form, Global, When},
    screen::Screen,
};

/// Form of the output.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    form: Form,
    screen: Screen,
    /// True if the standard output is a terminal whose cursor can be moved.
    terminal: bool,
}

impl Output {
    /// Returns the form that the flags ask for, on the process's standard output.
    pub fn of(flags: &Global) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colours = match flags.color {
            When::Always => true,
            When::Never => false,
            When::Auto => terminal && !no_colour && !dumb,
        };
        let width = terminal.then(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0))).flatten();
        Self { form: flags.output, screen: Screen { colours, width }, terminal: terminal && !dumb }
    }

    /// Output in a form, without colours.
    #[cfg(test)]
    pub fn plain(form: Form) -> Self {
        Self { form, screen: Screen::PLAIN, terminal: false }
    }

    /// Returns the form.
    pub fn form(self) -> Form {
        self.form
    }

    /// True if the output shows colours.
    pub fn colours(self) -> bool {
        self.screen.colours
    }

    /// True if the standard output is a terminal whose cursor can be moved.
    pub fn is_terminal(self) -> bool {
        self.terminal
    }

    /// Prints a value as data, or as the text that `text` makes of it.
    ///
    /// # Errors
    /// One line. A reader that has left is no error.
    pub fn print(
        self,
        out: &mut dyn Write,
        value: &impl Serialize,
        text: impl FnOnce(Screen) -> String,
    ) -> Result<(), (Exit, String)> {
        let written = match self.form {
            Form::Text => text(self.screen),
            Form::Json => serde_json::to_string_pretty(value).map_err(|error| failed(&error))? + "\n",
            Form::Dot => return Err((Exit::Usage, "only the trace of a workload has the form dot".to_owned())),
            Form::Yaml => serde_saphyr::to_string(value).map_err(|error| failed(&error))?,
        };
        write(out, &written)
    }
}

/// Writes a text.
///
/// # Errors
/// One line. A reader that has left is no error.
pub fn write(out: &mut dyn Write, text: &str) -> Result<(), (Exit, String)> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(failed(&error)),
        _ => Ok(()),
    }
}

fn failed(error: &dyn std::fmt::Display) -> (Exit, String) {
    (Exit::CouldNotAsk, format!("the output cannot be written: {error}"))
}
