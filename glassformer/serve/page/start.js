// One page at two addresses: at `/open` the lenses alone; at `/` the translator, below which they open when they are asked for.

const { begin } = await import(location.pathname === "/open" ? "./live.js" : "./home.js");
await begin();
