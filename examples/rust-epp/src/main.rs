//! A small endpoint picker: `rust-epp ADDRESS FILE` serves ext_proc at ADDRESS and picks from the endpoints in FILE.

mod answers;
mod picker;
mod process;

use std::env;
use std::error::Error;
use std::process::exit;

use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_server::ExternalProcessorServer;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic_health::ServingStatus;

use crate::picker::Picker;
use crate::process::Processor;

const EXT_PROC: &str = "envoy.service.ext_proc.v3.ExternalProcessor";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, file] = arguments.as_slice() else {
        eprintln!("usage: rust-epp ADDRESS FILE");
        exit(2);
    };
    let picker = Picker::new(file);
    picker.endpoints().map_err(|error| format!("{file}: {error}"))?;

    let (health, health_service) = tonic_health::server::health_reporter();
    for name in ["", "liveness", "readiness", EXT_PROC] {
        health.set_service_status(name, ServingStatus::Serving).await;
    }
    let listener = TcpListener::bind(address).await.map_err(|error| format!("{address}: {error}"))?;
    let mut terminated = signal(SignalKind::terminate())?;
    Server::builder()
        .add_service(health_service)
        .add_service(ExternalProcessorServer::new(Processor::new(picker)))
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async move {
            terminated.recv().await;
        })
        .await?;
    Ok(())
}
