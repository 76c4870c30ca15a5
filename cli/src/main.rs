//! The binary `kubectl-compute`. kubectl starts it for `kubectl compute`.

use std::{io::Write, process::ExitCode};

fn main() -> ExitCode {
    let (mut out, mut problems) = (std::io::stdout().lock(), std::io::stderr().lock());
    let exit = kubectl_compute::start(std::env::args_os(), &mut out, &mut problems);
    // A reader that has left, such as `head`, is no error.
    let _ = out.flush();
    ExitCode::from(exit.code())
}
