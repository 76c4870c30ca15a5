//! Stops and starts managers for the script `e2e/manager`. The script connects to a port, sends `stop NAME` or `start NAME` in
//! one line, and gets an answer of one line.

use std::{net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::operator::Operator;

/// Longest time until a manager ends. Kubernetes gives a pod the same time.
const GRACE: Duration = Duration::from_secs(30);

/// The port for requests.
#[derive(Debug)]
pub(crate) struct Managers {
    listener: TcpListener,
}

impl Managers {
    /// Reserves a free port.
    pub(crate) async fn listen() -> Result<Self> {
        Ok(Self { listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await? })
    }

    /// Returns the port.
    pub(crate) fn port(&self) -> Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Handles requests one by one until it is dropped.
    pub(crate) async fn serve(&self, operators: &mut [Operator]) -> Result<()> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            // If the client is gone before the answer, the request still counts.
            let _ = answer(stream, operators).await;
        }
    }
}

async fn answer(stream: TcpStream, operators: &mut [Operator]) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let reply = match carry_out(line.trim(), operators).await {
        Ok(()) => "done\n".to_owned(),
        Err(why) => format!("{}\n", format!("{why:#}").replace('\n', " ")),
    };
    stream.write_all(reply.as_bytes()).await?;
    Ok(())
}

async fn carry_out(asked: &str, operators: &mut [Operator]) -> Result<()> {
    let (verb, who) = asked.split_once(' ').context("the request needs a verb and a manager")?;
    let name = format!("operator-{who}");
    let operator = operators.iter_mut().find(|operator| operator.process.name() == name);
    let operator = operator.with_context(|| format!("manager {who} does not exist"))?;
    match verb {
        "stop" => match operator.process.stop(GRACE).await {
            0 => Ok(()),
            code => bail!("{name} ended with {code}: {}", operator.process.tail()),
        },
        // A start request may only make sure that the manager runs.
        "start" if operator.process.exit_code().is_none() => Ok(()),
        "start" => operator.start_again().await,
        other => bail!("{other}? stop or start"),
    }
}
