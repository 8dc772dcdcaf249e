package main

import (
	"errors"
	"io"
	"log/slog"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	destinationKey       = "x-gateway-destination-endpoint"
	destinationNamespace = "envoy.lb"
	servedKey            = "x-gateway-destination-endpoint-served"
	subsetKey            = "x-gateway-destination-endpoint-subset"
	subsetNamespace      = "envoy.lb.subset_hint"
	objectiveHeader      = "x-gateway-inference-objective"

	// chunkSize keeps body answers below the 64 KiB that Envoy recommends, with room for the message around them.
	chunkSize = 62_000
)

// Processor answers ext_proc streams; one stream is one HTTP request.
type Processor struct {
	extproc.UnimplementedExternalProcessorServer

	pool interface {
		Endpoints() []Endpoint
		Priority(objective string) int
	}
	picker *Picker
}

// Process answers each message as it comes. The pick needs only the headers, so nothing is held back, and the same
// conversation is right whether the data plane waits for answers or not. A reset by the data plane is a normal end.
func (p *Processor) Process(stream extproc.ExternalProcessor_ProcessServer) error {
	var modes *extproc.ProtocolConfiguration
	for first := true; ; first = false {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if first {
			modes = message.GetProtocolConfig()
		}
		if message.GetObservabilityMode() {
			continue // the data plane only shows us the traffic
		}
		answers := p.answer(message, modes)
		if answers == nil {
			return status.Errorf(codes.InvalidArgument, "a message of kind %T", message.GetRequest())
		}
		for _, answer := range answers {
			if err := stream.Send(answer); err != nil {
				return err
			}
			if answer.GetImmediateResponse() != nil {
				return nil
			}
		}
	}
}

// answer gives the answers to one message, in order; nil if its kind is unknown.
func (p *Processor) answer(
	message *extproc.ProcessingRequest, modes *extproc.ProtocolConfiguration,
) []*extproc.ProcessingResponse {
	switch request := message.GetRequest().(type) {
	case *extproc.ProcessingRequest_RequestHeaders:
		return []*extproc.ProcessingResponse{p.route(request.RequestHeaders, message.GetMetadataContext())}

	case *extproc.ProcessingRequest_RequestBody:
		var answers []*extproc.ProcessingResponse
		for _, body := range echo(request.RequestBody, fullDuplex(modes, modes.GetRequestBodyMode())) {
			answers = append(answers, &extproc.ProcessingResponse{
				Response: &extproc.ProcessingResponse_RequestBody{RequestBody: body},
			})
		}
		return answers

	case *extproc.ProcessingRequest_RequestTrailers:
		return []*extproc.ProcessingResponse{{
			Response: &extproc.ProcessingResponse_RequestTrailers{RequestTrailers: &extproc.TrailersResponse{}},
		}}

	case *extproc.ProcessingRequest_ResponseHeaders:
		served := entry(message.GetMetadataContext(), destinationNamespace, servedKey).GetStringValue()
		slog.Debug("response", "served", served)
		return []*extproc.ProcessingResponse{{
			Response: &extproc.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extproc.HeadersResponse{}},
		}}

	case *extproc.ProcessingRequest_ResponseBody:
		var answers []*extproc.ProcessingResponse
		for _, body := range echo(request.ResponseBody, fullDuplex(modes, modes.GetResponseBodyMode())) {
			answers = append(answers, &extproc.ProcessingResponse{
				Response: &extproc.ProcessingResponse_ResponseBody{ResponseBody: body},
			})
		}
		return answers

	case *extproc.ProcessingRequest_ResponseTrailers:
		return []*extproc.ProcessingResponse{{
			Response: &extproc.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extproc.TrailersResponse{}},
		}}
	}
	return nil
}

// route picks the endpoint of a request.
func (p *Processor) route(headers *extproc.HttpHeaders, metadata *corev3.Metadata) *extproc.ProcessingResponse {
	objective := header(headers, objectiveHeader)
	sheddable := objective != "" && p.pool.Priority(objective) < 0
	subset := readSubset(entry(metadata, subsetNamespace, subsetKey))
	picked, refusal := p.picker.Pick(p.pool.Endpoints(), subset, sheddable)
	if refusal != nil {
		return refuse(refusal)
	}
	return steer(joinEndpoints(picked))
}

// steer names the destination in the header and in the metadata, with one value. The header goes as raw_value, which
// Envoy reads, and replaces what the client may have sent.
func steer(destination string) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{
		Response: &extproc.ProcessingResponse_RequestHeaders{RequestHeaders: &extproc.HeadersResponse{
			Response: &extproc.CommonResponse{
				ClearRouteCache: true,
				HeaderMutation: &extproc.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{{
					Header:       &corev3.HeaderValue{Key: destinationKey, RawValue: []byte(destination)},
					AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
				}}},
			},
		}},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			destinationNamespace: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				destinationKey: structpb.NewStringValue(destination),
			}}),
		}},
	}
}

// refuse ends the request with an HTTP status. A gRPC status would not do: the data plane would choose its own.
func refuse(refusal *Refusal) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{
		Response: &extproc.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extproc.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(refusal.Status)},
			Body:    []byte(refusal.Reason + "\n"),
			Details: strings.ReplaceAll(refusal.Reason, " ", "_"),
		}},
	}
}

// fullDuplex says whether bodies of this mode must be sent back. A data plane that does not tell its modes is taken
// for one that runs in full duplex, as the data planes without this field do.
func fullDuplex(modes *extproc.ProtocolConfiguration, mode filter.ProcessingMode_BodySendMode) bool {
	return modes == nil || mode == filter.ProcessingMode_FULL_DUPLEX_STREAMED
}

// echo answers a body message: in full duplex with the same bytes in chunks, else with "unchanged".
func echo(body *extproc.HttpBody, duplex bool) []*extproc.BodyResponse {
	if !duplex {
		return []*extproc.BodyResponse{{Response: &extproc.CommonResponse{}}}
	}
	var answers []*extproc.BodyResponse
	for rest, more := body.GetBody(), true; more; {
		chunk := rest[:min(len(rest), chunkSize)]
		rest = rest[len(chunk):]
		more = len(rest) > 0
		answers = append(answers, &extproc.BodyResponse{Response: &extproc.CommonResponse{
			BodyMutation: &extproc.BodyMutation{Mutation: &extproc.BodyMutation_StreamedResponse{
				StreamedResponse: &extproc.StreamedBodyResponse{Body: chunk, EndOfStream: !more && body.GetEndOfStream()},
			}},
		}})
	}
	return answers
}

// entry reads one key of a metadata namespace; nil if either is not set.
func entry(metadata *corev3.Metadata, namespace, key string) *structpb.Value {
	return metadata.GetFilterMetadata()[namespace].GetFields()[key]
}

// header reads a request header: from raw_value, as Envoy sends it, or from value, as older data planes do.
func header(headers *extproc.HttpHeaders, name string) string {
	for _, h := range headers.GetHeaders().GetHeaders() {
		if strings.EqualFold(h.GetKey(), name) {
			if len(h.GetRawValue()) > 0 {
				return string(h.GetRawValue())
			}
			return h.GetValue()
		}
	}
	return ""
}
