package archive

import (
	"io"
	"iter"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"procaas/engine/model"
	"procaas/engine/records"
)

// A Row is a run in a file of Parquet. Its columns have the names of the answers of the API. Those of the event begin with event_.
// What has no fixed form is text with JSON in it. Columns are added at the end, and never change.
type Row struct {
	ID            string     `parquet:"id"`
	Pipeline      string     `parquet:"pipeline,dict"`
	Flow          string     `parquet:"flow,dict"`
	Key           string     `parquet:"key"`
	Status        string     `parquet:"status,dict"`
	Accepted      time.Time  `parquet:"accepted,timestamp(microsecond)"`
	Started       *time.Time `parquet:"started,timestamp(microsecond),optional"`
	Finished      *time.Time `parquet:"finished,timestamp(microsecond),optional"`
	Generation    int32      `parquet:"generation"`
	Bundle        string     `parquet:"bundle,dict"`
	FailedHandler string     `parquet:"failed_handler,dict"`
	Error         string     `parquet:"error"`
	ErrorClass    string     `parquet:"error_class,dict"`
	Reason        string     `parquet:"reason"`
	RerunOf       string     `parquet:"rerun_of"`
	EventID       string     `parquet:"event_id"`
	EventSource   string     `parquet:"event_source,dict"`
	EventType     string     `parquet:"event_type,dict"`
	EventTime     time.Time  `parquet:"event_time,timestamp(microsecond)"`
	EventPayload  []byte     `parquet:"event_payload,json"`
	SharedState   []byte     `parquet:"shared_state,json"`
	Outputs       []byte     `parquet:"outputs,json"`
	Handlers      []byte     `parquet:"handlers,json"`
	NotUndone     []byte     `parquet:"not_undone,json"`
	Labels        []byte     `parquet:"labels,json"`
	State         string     `parquet:"state,dict"`
	Recording     []byte     `parquet:"recording,json"` // null unless the run was recorded
}

// rowOf returns the row of a run.
func rowOf(r records.Archived) Row {
	return Row{
		ID: r.ID, Pipeline: r.Pipeline, Flow: r.Flow, Key: r.Key, Status: string(r.Status),
		Accepted: r.Accepted, Started: r.Started, Finished: r.Finished, Generation: int32(r.Generation), Bundle: r.Bundle,
		FailedHandler: r.FailedPath, Error: r.Error, ErrorClass: r.ErrorClass, Reason: r.Reason, RerunOf: r.RerunOf,
		EventID: r.Event.ID, EventSource: r.Event.Source, EventType: r.Event.Type, EventTime: r.Event.Time,
		EventPayload: model.EncodeJSON(r.Event.Payload), SharedState: model.EncodeJSON(r.SharedState), Outputs: model.EncodeJSON(r.Outputs),
		Handlers: model.EncodeJSON(r.Handlers), NotUndone: model.EncodeJSON(r.NotUndone), Labels: model.EncodeJSON(r.Labels),
		State: r.State, Recording: model.EncodeJSON(r.Recording),
	}
}

// writeRows writes runs as a file of Parquet.
func writeRows(w io.Writer, runs iter.Seq[records.Archived]) error {
	rows := parquet.NewGenericWriter[Row](w, parquet.Compression(&zstd.Codec{}), parquet.CreatedBy("procaas", "", ""))
	for r := range runs {
		if _, err := rows.Write([]Row{rowOf(r)}); err != nil {
			return err
		}
	}
	return rows.Close()
}
