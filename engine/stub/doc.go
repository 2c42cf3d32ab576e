// Package stub serves stub services: real HTTP servers that answer as *.stub.yaml files say.
//
// A file describes services by their routes: what a route answers, how long it takes, how often it
// fails. Replies and conditions are templates with expressions, as in pipelines. They read request
// (method, path, params, query, headers, body) and calls, the number of calls of the route,
// including the current one.
//
//	services:
//	  - id: orders
//	    listen: 127.0.0.1:9081
//	    routes:
//	      - method: GET
//	        path: /v1/orders/{id}
//	        latency: {min: 2ms, max: 8ms}
//	        failure: {ratio: 0.01, status: 503}
//	        reply:
//	          body:
//	            id: !$ request.params.id
//	    incidents:
//	      - {id: orders-down, failure: {status: 500}}
//
// A route with overload gets slower with more requests in flight, like real services.
//
// An incident makes routes fail, or slow, while it is switched on. Random numbers come from the seed of the
// file, so the n-th call of a route always has the same latency and the same failure.
//
// The servers remember who called: see [Server.Record], and for other processes GET
// /__stub/calls on the port of any service.
package stub
