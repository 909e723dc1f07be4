// Command otlp-receiver takes OTLP over HTTP as JSON with the decoder of the OpenTelemetry collector itself, refuses
// what that decoder refuses, and appends what it understood to a file, one message a line.
//
// The whole collector would do the same with more parts; one of them (collector/internal/statusutil) is not on every
// module proxy.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// request is what both kinds of OTLP messages can do.
type request interface {
	UnmarshalJSON([]byte) error
	MarshalJSON() ([]byte, error)
}

// sink is the file that everything goes to.
type sink struct {
	sync.Mutex
	file *os.File
}

func (s *sink) take(fresh func() request) http.HandlerFunc {
	return func(answer http.ResponseWriter, asked *http.Request) {
		if asked.Header.Get("Content-Type") != "application/json" {
			http.Error(answer, "only application/json", http.StatusUnsupportedMediaType)
			return
		}
		body, err := io.ReadAll(asked.Body)
		if err != nil {
			return
		}
		message := fresh()
		if err := message.UnmarshalJSON(body); err != nil {
			log.Printf("refused: %v: %s", err, body)
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		line, err := message.MarshalJSON()
		if err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
			return
		}
		s.Lock()
		defer s.Unlock()
		if _, err := fmt.Fprintf(s.file, "%s\n", line); err != nil {
			http.Error(answer, err.Error(), http.StatusInternalServerError)
			return
		}
		answer.Header().Set("Content-Type", "application/json")
		fmt.Fprint(answer, "{}")
	}
}

func main() {
	listen := flag.String("listen", "127.0.0.1:4318", "address")
	into := flag.String("file", "", "file to append to")
	version := flag.Bool("version", false, "print the version of the decoder")
	flag.Parse()
	if *version {
		fmt.Println("otlp-receiver 1.70.0")
		return
	}
	file, err := os.OpenFile(*into, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	all := &sink{file: file}
	http.HandleFunc("POST /v1/traces", all.take(func() request {
		message := ptraceotlp.NewExportRequest()
		return &message
	}))
	http.HandleFunc("POST /v1/metrics", all.take(func() request {
		message := pmetricotlp.NewExportRequest()
		return &message
	}))
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, nil))
}
