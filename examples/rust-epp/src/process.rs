//! The ext_proc conversation: one stream for each HTTP request.

use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Metadata;
use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;
use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_server::ExternalProcessor;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request as Sent;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response as Answer;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    HeadersResponse, ProcessingRequest, ProcessingResponse, ProtocolConfiguration, TrailersResponse,
};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::answers::{forward, refuse, steer};
use crate::picker::{Picker, Subset};

const SUBSET_NAMESPACE: &str = "envoy.lb.subset_hint";
const SUBSET: &str = "x-gateway-destination-endpoint-subset";

/// The service that the data plane calls.
pub struct Processor {
    picker: Arc<Picker>,
}

impl Processor {
    pub fn new(picker: Picker) -> Self {
        Self { picker: Arc::new(picker) }
    }
}

#[tonic::async_trait]
impl ExternalProcessor for Processor {
    type ProcessStream = ReceiverStream<Result<ProcessingResponse, Status>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let (answers, stream) = mpsc::channel(16);
        tokio::spawn(converse(self.picker.clone(), request.into_inner(), answers));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// Answers each message as it comes: the pick needs only the headers, so nothing is held back. The stream ends with
/// the data plane's last message, or with a refusal, after which nothing may follow.
async fn converse(
    picker: Arc<Picker>,
    mut messages: Streaming<ProcessingRequest>,
    answers: mpsc::Sender<Result<ProcessingResponse, Status>>,
) {
    let mut modes = None;
    while let Some(Ok(message)) = messages.next().await {
        modes = modes.or(message.protocol_config);
        if message.observability_mode {
            continue; // the data plane only shows the traffic
        }
        for answer in answer(&picker, message, modes.as_ref()) {
            let last = matches!(answer, Ok(ProcessingResponse { response: Some(Answer::ImmediateResponse(_)), .. }));
            if answers.send(answer).await.is_err() || last {
                return;
            }
        }
    }
}

/// The answers to one message, in order.
fn answer(
    picker: &Picker,
    message: ProcessingRequest,
    modes: Option<&ProtocolConfiguration>,
) -> Vec<Result<ProcessingResponse, Status>> {
    let answers: Vec<Answer> = match message.request {
        Some(Sent::RequestHeaders(_)) => {
            let subset = Subset::read(entry(message.metadata_context.as_ref()));
            return vec![Ok(match picker.pick(&subset) {
                Some(endpoint) => steer(&endpoint.to_string()),
                None => refuse(503, "no ready endpoint"),
            })];
        }
        Some(Sent::RequestBody(body)) => {
            let duplex = modes.is_none_or(|modes| full_duplex(modes.request_body_mode));
            forward(&body, duplex).into_iter().map(Answer::RequestBody).collect()
        }
        Some(Sent::ResponseBody(body)) => {
            let duplex = modes.is_none_or(|modes| full_duplex(modes.response_body_mode));
            forward(&body, duplex).into_iter().map(Answer::ResponseBody).collect()
        }
        Some(Sent::RequestTrailers(_)) => vec![Answer::RequestTrailers(TrailersResponse::default())],
        Some(Sent::ResponseHeaders(_)) => vec![Answer::ResponseHeaders(HeadersResponse::default())],
        Some(Sent::ResponseTrailers(_)) => vec![Answer::ResponseTrailers(TrailersResponse::default())],
        None => return vec![Err(Status::invalid_argument("a message of an unknown kind"))],
    };
    answers.into_iter().map(|answer| Ok(ProcessingResponse { response: Some(answer), ..Default::default() })).collect()
}

/// Whether bodies of this mode must be sent back. A data plane that does not tell its modes is taken for one that runs
/// in full duplex.
fn full_duplex(mode: i32) -> bool {
    mode == BodySendMode::FullDuplexStreamed as i32
}

fn entry(metadata: Option<&Metadata>) -> Option<&envoy_types::pb::google::protobuf::Value> {
    metadata?.filter_metadata.get(SUBSET_NAMESPACE)?.fields.get(SUBSET)
}
