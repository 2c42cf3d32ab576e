package stub

import (
	"embed"
	"time"

	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

//go:embed spec.go
var specFiles embed.FS

// A Spec says which stub services to serve.
type Spec struct {
	// Seed is what chance is drawn from: the same seed has the same latencies
	// and failures.
	Seed int `yaml:"seed" default:"1"`

	// Services are the stub services.
	Services []*Service `yaml:"services" required:"true"`
}

// A Service is one stub service: an HTTP server of its own.
type Service struct {
	Span diag.Span `yaml:"-"`

	// ID names the service.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Listen is the loopback address that it listens on; port 0 takes a free one.
	Listen string `yaml:"listen" default:"127.0.0.1:0"`

	// Routes are tried in order; the first that fits a request answers it.
	Routes []*Route `yaml:"routes" required:"true"`

	// Incidents are failures to be switched on and off at run time.
	Incidents []*Incident `yaml:"incidents"`
}

// A Route answers the requests that it fits.
type Route struct {
	Span diag.Span `yaml:"-"`

	// Method is the method to fit; any when it is left out.
	Method string `yaml:"method" enum:"GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS"`

	// Path is the path to fit. A segment in braces, such as {id}, fits any and
	// can be read as request.params.id.
	Path string `yaml:"path" required:"true"`

	// When must be true for the route to fit.
	When *expr.Value `yaml:"when" kind:"bool"`

	// Latency is how long an answer takes: a duration, or min and max.
	Latency *expr.Value `yaml:"latency" expr:"no"`

	// Overload makes the route slower while many requests are in flight.
	Overload *Overload `yaml:"overload"`

	// Failure makes some of the calls fail.
	Failure *Failure `yaml:"failure"`

	// Reply is the answer; 200 without a body when it is left out.
	Reply *Reply `yaml:"reply"`
}

// An Overload is how a route gets slower when more requests are in flight than it
// can take: an answer then takes factor as long, for each so many requests more,
// up to a minute. Requests are answered in order, and those whose caller has gone
// count until then: a service that does not notice collapses, and does not
// recover while callers repeat their calls.
type Overload struct {
	Span diag.Span `yaml:"-"`

	// Above is how many requests at once the route can take.
	Above int `yaml:"above" required:"true" min:"0" max:"1000000"`

	// Factor multiplies the time of an answer.
	Factor float64 `yaml:"factor" default:"2" min:"1" max:"1000"`

	// Per is for how many requests more it takes factor as long.
	Per int `yaml:"per" default:"10" min:"1" max:"1000000"`
}

// A Failure is how calls fail, and how many of them.
type Failure struct {
	Span diag.Span `yaml:"-"`

	// Ratio is the share of calls that fail.
	Ratio float64 `yaml:"ratio" default:"1" min:"0" max:"1"`

	// Status is the status of the reply.
	Status int `yaml:"status" default:"500" min:"400" max:"599"`

	// Body is the body of the reply, sent as JSON.
	Body *expr.Value `yaml:"body"`

	// Hang keeps the caller waiting for this time and then hangs up, without any
	// reply.
	Hang time.Duration `yaml:"hang" min:"1ms"`
}

// A Reply is an answer.
type Reply struct {
	Span diag.Span `yaml:"-"`

	// Status is the status of the reply.
	Status int `yaml:"status" default:"200" min:"200" max:"599"`

	// Headers are the headers of the reply.
	Headers *expr.Value `yaml:"headers"`

	// Body is the body: text is sent as it is when headers name a content type,
	// anything else as JSON.
	Body *expr.Value `yaml:"body"`
}

// An Incident is a failure, or slowness, that is switched on and off at run time.
type Incident struct {
	Span diag.Span `yaml:"-"`

	// ID names the incident.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Route is the path of the routes that fail, as they write it; all routes of
	// the service when it is left out.
	Route string `yaml:"route"`

	// Failure is how they fail.
	Failure *Failure `yaml:"failure"`

	// Latency is how long their answers take instead, which are then as ever.
	Latency time.Duration `yaml:"latency" min:"1ms"`
}
