package httpd

// RouteRow is one row of the table of routes, for tests.
type RouteRow struct{ Method, Path, Runs string }

// Routes returns the table of routes.
func Routes() []RouteRow {
	var all []RouteRow
	for _, rt := range (*Server)(nil).routes() {
		all = append(all, RouteRow{rt.method, rt.path, rt.class.String()})
	}
	return all
}
