// Values for what a bento's schema asks, and the same call as curl and as a Python program.
export const FILE = Symbol("file");

// What a member of a schema begins with. Schemas are a bento's, so anything may stand in them.
export function sample(schema, name = "", depth = 0) {
  if (!schema || typeof schema !== "object" || depth > 6) return "";
  if (schema.format === "binary" || schema.type === "file") return FILE;
  if (schema.examples?.length) return schema.examples[0];
  if (schema.default !== undefined && schema.default !== "") return schema.default;
  if (schema.enum?.length) return schema.enum[0];
  const choice = schema.anyOf ?? schema.oneOf;
  if (choice) return sample(choice.find(({ type }) => type !== "null") ?? choice[0], name, depth + 1);
  switch (Array.isArray(schema.type) ? schema.type.find((type) => type !== "null") : schema.type) {
    case "integer":
      return Math.ceil(schema.minimum ?? 1);
    case "number":
      return schema.minimum ?? 1;
    case "boolean":
      return true;
    case "null":
      return null;
    case "array":
      return schema.items?.format === "binary" ? FILE : [sample(schema.items, name, depth + 1)];
    case "tensor":
      return [1, 1];
    case "dataframe":
      return [{ column: 1 }];
    case "object":
      return Object.fromEntries(
        Object.entries(schema.properties ?? {}).map(([key, member]) => [key, sample(member, key, depth + 1)]),
      );
    default:
      return "Hello";
  }
}

export const isFile = (schema) => sample(schema) === FILE;

const quoted = (text) => `'${text.replaceAll("'", `'"'"'`)}'`;

// The call for a shell. `values` by name; those of `files` are names of files.
export function asCurl({ url, path, values, files, isProtected }) {
  const parts = [`curl -X POST ${quoted(url + path)}`];
  if (isProtected) parts.push('-H "Authorization: Bearer $ENDPOINT_TOKEN"');
  if (Object.keys(files).length) {
    for (const [name, value] of Object.entries(values))
      parts.push(`-F ${quoted(`${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)}`);
    for (const [name, file] of Object.entries(files)) parts.push(`-F ${quoted(`${name}=@${file}`)}`);
  } else parts.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(values))}`);
  return parts.join(" \\\n  ");
}

const python = (value) => {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object")
    return `{${Object.entries(value)
      .map(([key, member]) => `${JSON.stringify(key)}: ${python(member)}`)
      .join(", ")}}`;
  return JSON.stringify(value);
};
const IDENTIFIER = /^[A-Za-z_]\w*$/;

// The same with BentoML's client.
export function asPython({ url, name, values, files, isProtected, streams, isTask }) {
  const given = [
    ...Object.entries(values).map(([key, value]) => [key, python(value)]),
    ...Object.entries(files).map(([key, file]) => [key, `Path(${JSON.stringify(file)})`]),
  ];
  const named = given.every(([key]) => IDENTIFIER.test(key));
  const text = named
    ? given.map(([key, value]) => `${key}=${value}`).join(", ")
    : `**{${given.map(([key, value]) => `${JSON.stringify(key)}: ${value}`).join(", ")}}`;
  const method = `client.${IDENTIFIER.test(name) ? name : "call"}`;
  const open = `bentoml.SyncHTTPClient(${JSON.stringify(url)}${isProtected ? ', token=os.environ["ENDPOINT_TOKEN"]' : ""})`;
  const imports = [
    isProtected && "import os",
    Object.keys(files).length && "from pathlib import Path",
    "import bentoml",
  ]
    .filter(Boolean)
    .join("\n");
  const body = isTask
    ? `    task = ${method}.submit(${text})\n    print(task.get())`
    : streams
      ? `    for piece in ${method}(${text}):\n        print(piece, end="", flush=True)`
      : `    print(${method}(${text}))`;
  return `${imports}\n\nwith ${open} as client:\n${body}`;
}
