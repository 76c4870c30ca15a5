//! `top`: a live view of what waits, and of cities and cells.
//!
//! [`app`] is the state, [`draw`] the screen, [`feed`] the reads, [`terminal`] the terminal.

pub mod app;
pub mod draw;
mod feed;
pub mod rates;
mod table;
pub mod terminal;

use std::time::Duration;

use crossterm::event::{Event, EventStream};
use futures::StreamExt;
use jiff::Timestamp;
use tokio::sync::mpsc;

use self::{
    app::{App, Ask},
    feed::Readers,
    terminal::Session,
};
use crate::{
    exit::Exit,
    flags::{self, Form},
    output::Output,
    planes,
};

/// Time after which the ages on the screen are drawn again.
const TICK: Duration = Duration::from_secs(1);

/// Runs the command until the user quits.
///
/// # Errors
/// One line, with the exit code.
pub async fn run(global: &flags::Global, args: &flags::Top, output: Output) -> Result<Exit, (Exit, String)> {
    if output.form() != Form::Text || !output.is_terminal() {
        let why = "top needs a terminal: for scripts, use `kubectl compute waiting` and `kubectl compute map`";
        return Err((Exit::Usage, why.to_owned()));
    }
    // What is wrong from the start is said without a screen.
    let could_not_ask = |error| (Exit::CouldNotAsk, error);
    planes::kubeconfig(global.kubeconfig.as_deref()).map_err(could_not_ask)?;
    let (say, mut reads) = mpsc::unbounded_channel();
    let readers = Readers::start(global, args, &say);
    let mut app = App::default();
    let shown = async {
        let mut session = Session::start()?;
        let mut events = EventStream::new();
        let mut tick = tokio::time::interval(TICK);
        let end = ended();
        tokio::pin!(end);
        loop {
            session.draw(|frame| draw::draw(frame, &app, Timestamp::now(), output.colours()))?;
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(Event::Key(key))) if !key.is_release() => match app.on_key(key) {
                        Some(Ask::Quit) => return Ok(()),
                        Some(Ask::Refresh) => readers.refresh(),
                        None => readers.open(app.open()),
                    },
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error),
                    None => return Ok(()),
                },
                Some(read) = reads.recv() => app.on_read(read),
                _ = tick.tick() => {}
                () = &mut end => return Ok(()),
            }
            // Several may have arrived: one screen shows all of them.
            while let Ok(read) = reads.try_recv() {
                app.on_read(read);
            }
        }
    };
    let result: std::io::Result<()> = shown.await;
    result.map_err(|error| could_not_ask(format!("the terminal cannot be used: {error}")))?;
    Ok(Exit::Well)
}

/// Waits for a signal that ends the process. Ctrl-C is a key here, and a signal if another process sends it.
async fn ended() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let of = async |kind| match signal(kind) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        };
        tokio::select! {
            () = of(SignalKind::interrupt()) => {}
            () = of(SignalKind::terminate()) => {}
            () = of(SignalKind::hangup()) => {}
        }
    }
    #[cfg(not(unix))]
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
