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

// The call for a shell. `values` by name, or one where the `isRoot` of a method is the whole body;
// `files` are the names of files by name.
export function asCurl({ url, path, values, files, isRoot, isProtected, version }) {
  const parts = [`curl -X POST ${quoted(url + path)}`];
  if (version) parts.push(`-H ${quoted(`Hotplate-Version: ${version}`)}`);
  if (isProtected) parts.push('-H "Authorization: Bearer $ENDPOINT_TOKEN"');
  const named = Object.entries(files);
  if (!named.length) parts.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(values))}`);
  else if (isRoot) parts.push(`--data-binary ${quoted(`@${named[0][1][0]}`)}`);
  else {
    for (const [name, value] of Object.entries(values)) parts.push(`-F ${quoted(`${name}=${JSON.stringify(value)}`)}`);
    for (const [name, paths] of named) for (const file of paths) parts.push(`-F ${quoted(`${name}=@${file}`)}`);
  }
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
const KEYWORDS = new Set(
  (
    "False None True and as assert async await break class continue def del elif else except finally for from " +
    "global if import in is lambda nonlocal not or pass raise return try while with yield"
  ).split(" "),
);
const isName = (text) => /^[A-Za-z_]\w*$/.test(text) && !KEYWORDS.has(text);
// Names with another meaning in BentoML's client: a method of that name is `api_NAME` there.
const CLIENTS_OWN = "call client client_cls close default_temp_dir is_ready request serde".split(" ");

const given = ([key, value]) => (isName(key) ? `${key}=${value}` : `**{${JSON.stringify(key)}: ${value}}`);

// The same with BentoML's client; its one for synchronous code cannot submit tasks (BentoML 1.4.39).
export function asPython({ url, name, values, files, lists, isRoot, isProtected, version, streams, isTask }) {
  const paths = Object.entries(files).map(([key, [first, ...more]]) => {
    const [one, ...others] = [first, ...more].map((file) => `Path(${JSON.stringify(file)})`);
    return [key, lists.includes(key) ? `[${[one, ...others].join(", ")}]` : one];
  });
  const members = isRoot ? [] : Object.entries(values).map(([key, value]) => [key, python(value)]);
  const text = isRoot ? (paths[0]?.[1] ?? python(values)) : [...members, ...paths].map(given).join(", ");
  const method = CLIENTS_OWN.includes(name) ? `api_${name}` : name;
  const target = isName(method) ? `client.${method}` : `getattr(client, ${JSON.stringify(method)})`;
  const token = isProtected ? ', token=os.environ["ENDPOINT_TOKEN"]' : "";
  const open = `bentoml.${isTask ? "Async" : "Sync"}HTTPClient(${JSON.stringify(url)}${token})`;
  const choice = version ? [`client.client.headers["Hotplate-Version"] = ${JSON.stringify(version)}`] : [];
  const imports = [
    isTask && "import asyncio",
    isProtected && "import os",
    paths.length && "from pathlib import Path",
    "import bentoml",
  ].filter(Boolean);
  const indented = (depth, lines) => lines.map((line) => " ".repeat(4 * depth) + line);
  const body = isTask
    ? [
        "async def main():",
        ...indented(1, [`async with ${open} as client:`]),
        ...indented(2, [
          ...choice,
          `task = await ${target}.submit(${text})`,
          'while (await task.get_status()).value in ("pending", "in_progress"):',
          "    await asyncio.sleep(1)",
          "print(await task.get())",
        ]),
        "",
        "asyncio.run(main())",
      ]
    : [
        `with ${open} as client:`,
        ...indented(1, [
          ...choice,
          ...(streams
            ? [`for piece in ${target}(${text}):`, '    print(piece, end="", flush=True)']
            : [`print(${target}(${text}))`]),
        ]),
      ];
  return [...imports, "", ...body].join("\n");
}
