// Command otlp-receiver takes OTLP over HTTP, as protobuf or as JSON, with the decoder of the OpenTelemetry collector
// itself, refuses what that decoder refuses, and appends what it understood to a file, one message a line as JSON. With
// a certificate it serves TLS; with an authority it demands a certificate from whoever sends.
//
// The whole collector would do the same with more parts; one of them (collector/internal/statusutil) is not on every
// module proxy.
package main

import (
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// message is what requests and responses of every signal can do.
type message interface {
	UnmarshalJSON([]byte) error
	MarshalJSON() ([]byte, error)
	UnmarshalProto([]byte) error
	MarshalProto() ([]byte, error)
}

// codec is one of the two encodings of OTLP over HTTP.
type codec struct {
	decode func(message, []byte) error
	encode func(message) ([]byte, error)
}

// codecs by their content type.
var codecs = map[string]codec{
	"application/json":       {message.UnmarshalJSON, message.MarshalJSON},
	"application/x-protobuf": {message.UnmarshalProto, message.MarshalProto},
}

// sink is a file that lines are appended to.
type sink struct {
	sync.Mutex
	file *os.File
}

func open(path string) *sink {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	return &sink{file: file}
}

func (s *sink) append(line []byte) error {
	s.Lock()
	defer s.Unlock()
	_, err := fmt.Fprintf(s.file, "%s\n", line)
	return err
}

// receiver keeps the messages that it understood, and of every request its path and its headers.
type receiver struct {
	messages *sink
	requests *sink
}

func body(asked *http.Request) ([]byte, error) {
	switch encoding := asked.Header.Get("Content-Encoding"); encoding {
	case "":
		return io.ReadAll(asked.Body)
	case "gzip":
		plain, err := gzip.NewReader(asked.Body)
		if err != nil {
			return nil, err
		}
		return io.ReadAll(plain)
	default:
		return nil, fmt.Errorf("no encoding of ours: %s", encoding)
	}
}

func (r *receiver) take(fresh, response func() message) http.HandlerFunc {
	return func(answer http.ResponseWriter, asked *http.Request) {
		request, err := json.Marshal(map[string]any{"path": asked.URL.Path, "headers": asked.Header})
		if err = errors.Join(err, r.requests.append(request)); err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
			return
		}
		kind := asked.Header.Get("Content-Type")
		codec, known := codecs[kind]
		if !known {
			log.Printf("refused: content type %q", kind)
			http.Error(answer, "only application/x-protobuf and application/json", http.StatusUnsupportedMediaType)
			return
		}
		bytes, err := body(asked)
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		message := fresh()
		if err := codec.decode(message, bytes); err != nil {
			log.Printf("refused: %v: %q", err, bytes)
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		line, err := message.MarshalJSON()
		if err = errors.Join(err, r.messages.append(line)); err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
			return
		}
		said, err := codec.encode(response())
		if err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
			return
		}
		answer.Header().Set("Content-Type", kind)
		_, _ = answer.Write(said)
	}
}

// authority is whoever signs the certificates of those who may send; nobody has to have one if there is no file.
func authority(path string) (*tls.Config, error) {
	if path == "" {
		return &tls.Config{}, nil
	}
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", path)
	}
	return &tls.Config{ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}, nil
}

func main() {
	listen := flag.String("listen", "127.0.0.1:4318", "address")
	messages := flag.String("file", "", "file to append messages to")
	requests := flag.String("requests", os.DevNull, "file to append paths and headers of requests to")
	certificate := flag.String("certificate", "", "file with our certificate; without one there is no TLS")
	key := flag.String("key", "", "file with its key")
	clients := flag.String("client-authority", "", "file with the authority of the senders' certificates")
	version := flag.Bool("version", false, "print the version of the decoder")
	flag.Parse()
	if *version {
		fmt.Println("otlp-receiver 1.70.0")
		return
	}
	all := &receiver{messages: open(*messages), requests: open(*requests)}
	http.HandleFunc("POST /v1/traces", all.take(func() message {
		request := ptraceotlp.NewExportRequest()
		return &request
	}, func() message {
		response := ptraceotlp.NewExportResponse()
		return &response
	}))
	http.HandleFunc("POST /v1/metrics", all.take(func() message {
		request := pmetricotlp.NewExportRequest()
		return &request
	}, func() message {
		response := pmetricotlp.NewExportResponse()
		return &response
	}))
	http.HandleFunc("POST /v1/logs", all.take(func() message {
		request := plogotlp.NewExportRequest()
		return &request
	}, func() message {
		response := plogotlp.NewExportResponse()
		return &response
	}))
	config, err := authority(*clients)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{TLSConfig: config}
	if *certificate == "" {
		log.Fatal(server.Serve(listener))
	}
	log.Fatal(server.ServeTLS(listener, *certificate, *key))
}
